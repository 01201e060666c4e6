"""Least squares whose solution has no negative part: the active-set method of Lawson and Hanson (1974), in numpy.

**Inputs** A matrix and a vector. **Parameters** None that matter; a tolerance relative to the data.
**Trade-offs** Exact and finite for the handful of columns of a cost model; not meant for hundreds.
**Failure modes** Columns that depend on one another have many solutions of the same error, of which this finds one;
`cost_fit.py`, which calls it, takes such columns out beforehand.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def nnls(matrix: Array, target: Array) -> Array:
    """The x ≥ 0 that minimises |matrix · x - target|."""
    columns = matrix.shape[1]
    solution = np.zeros(columns)
    free = np.zeros(columns, dtype=bool)  # the passive set: what may be above zero
    tolerance = 1e-12 * (float(np.abs(matrix.T @ target).max(initial=0.0)) + 1e-300)
    for _ in range(3 * columns + 10):
        gradient = matrix.T @ (target - matrix @ solution)
        gradient[free] = -np.inf
        if columns == 0 or gradient.max() <= tolerance:
            break
        free[int(gradient.argmax())] = True
        solution = _descend(matrix, target, solution, free)
    return solution


def _descend(matrix: Array, target: Array, solution: Array, free: npt.NDArray[np.bool_]) -> Array:
    """Towards the least squares of the free columns, up to the first that would turn negative, which is then fixed."""
    while free.any():
        wanted = np.zeros_like(solution)
        wanted[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        blocking = free & (wanted <= 0)
        if not blocking.any():
            return wanted
        steps = solution[blocking] / np.maximum(solution[blocking] - wanted[blocking], 1e-300)
        solution = solution + float(steps.min()) * (wanted - solution)
        released = blocking & (solution <= 1e-15 * max(1.0, float(np.abs(wanted).max())))
        released[np.flatnonzero(blocking)[int(steps.argmin())]] = True
        free[released] = False
        solution[~free] = 0.0
    return np.zeros_like(solution)
