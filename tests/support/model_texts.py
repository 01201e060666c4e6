"""LightGBM model texts of random trees that use all that such a text can hold, and rows on the edges of splits."""

import numpy as np

NEARLY_ZERO = float(np.float32(1e-35))
EDGES = [
    *(np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 1e-36, -1e-36, 1e300, -1e300, 1e308, 0.5, -0.5, 1.0, -1.0),
    *(NEARLY_ZERO, -NEARLY_ZERO, np.nextafter(NEARLY_ZERO, 1), np.nextafter(-NEARLY_ZERO, -1)),
    *(3.0, 3.999, 31.0, 32.0, 33.0, 63.5, 64.0, 2.0**31 - 1, 2.0**31, 2.0**32 + 3, -(2.0**31), 2.0**53),
]
OBJECTIVES = {  # as a text has them, by how many scores they have
    1: (
        *(
            "",
            "custom",
            "regression",
            "regression sqrt",
            "regression_l1",
            "huber sqrt",
            "fair",
            "quantile",
            "mape sqrt",
        ),
        *("poisson", "gamma", "tweedie tweedie_variance_power:1.5", "binary sigmoid:1", "binary sigmoid:0.7"),
        *("cross_entropy", "cross_entropy_lambda", "lambdarank", "rank_xendcg"),
    ),
    3: ("", "custom", "multiclass num_class:3", "multiclassova num_class:3 sigmoid:1.1"),
}


def random_text(rng, *, features=4, trees=6, leaves=12, scores=1, objective="", averages=False, splits="any"):
    """`splits`: "any" kind of them, or only "plain" ones, where NaN has a way of its own as in converted forests."""
    bodies = [_tree(rng, place, int(rng.integers(1, leaves + 1)), features, splits) for place in range(trees)]
    head = [
        "tree",
        "version=v4",
        f"num_class={scores}",
        f"num_tree_per_iteration={scores}",
        "label_index=0",
        f"max_feature_idx={features - 1}",
        *([f"objective={objective}"] if objective else []),
        *(["average_output"] if averages else []),
        "feature_names=" + " ".join(f"f{place}" for place in range(features)),
        "feature_infos=" + " ".join(["none"] * features),
        "tree_sizes=" + " ".join(str(len(body)) for body in bodies),
    ]
    return "\n".join(head) + "\n\n" + "".join(bodies) + "end of trees\n\nparameters:\nend of parameters\n"


def rows_for(rng, thresholds, features, rows):
    """Numbers of all kinds, among them the thresholds and their neighbours."""
    on_the_edge = np.concatenate([thresholds, np.nextafter(thresholds, np.inf), np.nextafter(thresholds, -np.inf)])
    pool = np.concatenate([EDGES, on_the_edge, rng.normal(size=20) * 3, rng.integers(-2, 70, size=20)])
    return rng.choice(pool, size=(rows, features))


def _tree(rng, place, leaves, features, splits):
    left, right = np.zeros(leaves - 1, dtype=int), np.zeros(leaves - 1, dtype=int)
    parents = [(None, None)]  # of each leaf so far: who points to it
    for node in range(leaves - 1):
        leaf = int(rng.integers(node + 1)) if rng.random() < 0.7 else node  # bushy, with long branches
        array, where = parents[leaf]
        if array is not None:
            array[where] = node
        left[node], right[node] = ~leaf, ~(node + 1)
        parents[leaf] = (left, node)
        parents.append((right, node))
    threshold = rng.choice([*rng.normal(size=9).round(2), NEARLY_ZERO, -NEARLY_ZERO, 0.0, 1e300], size=leaves - 1)
    decision = 8 + 2 * rng.integers(2, size=leaves - 1)
    words, bounds = [], [0]
    if splits == "any":
        decision = rng.choice([0, 2, 4, 6, 8, 10, 1, 5, 9], size=leaves - 1)
        for node in np.flatnonzero(decision & 1):
            threshold[node] = len(bounds) - 1
            words += rng.integers(2**32, size=int(rng.integers(1, 4))).tolist()
            bounds.append(len(words))
    sets = len(bounds) - 1
    lines = [
        f"Tree={place}",
        f"num_leaves={leaves}",
        f"num_cat={sets}",
        "split_feature=" + _line(rng.integers(features, size=leaves - 1)),
        "split_gain=" + _line(np.zeros(leaves - 1, dtype=int)),
        "threshold=" + _line(threshold),
        "decision_type=" + _line(decision),
        "left_child=" + _line(left),
        "right_child=" + _line(right),
        "leaf_value=" + _line(rng.normal(size=leaves) * rng.choice([1e-3, 1, 300])),
        "leaf_count=" + _line(np.zeros(leaves, dtype=int)),
        *(["cat_boundaries=" + _line(bounds), "cat_threshold=" + _line(words)] if sets else []),
        "is_linear=0",
        "shrinkage=1",
    ]
    return "\n".join(lines) + "\n\n\n"


def _line(values):
    return " ".join(map(repr, np.asarray(values).tolist()))
