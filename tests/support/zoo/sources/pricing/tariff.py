"""What the model with artifacts charges."""


def charge(amount: float, rate: float, floor: float) -> float:
    """An amount at a rate, never below the floor."""
    return max(amount * rate, floor)
