"""Lower bound on bins of two capacities by a linear program over patterns."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["pattern_bound"]

_INT = NDArray[np.int64]


def pattern_bound(tokens: _INT, images: _INT, capacity: int, limit: int) -> int:
    """Bins that any packing needs, for samples that are taken to be as short as they can be.

    Samples with as many images count as the shortest of them. Every way to fill a bin with these
    few kinds is a column; the fewest columns, fractions allowed, that hold all samples is a bound
    for the true lengths too (Gilmore and Gomory, 1961).
    """
    from scipy.optimize import linprog

    kinds = np.unique(images)
    sizes = [(int(tokens[images == kind].min()), int(kind)) for kind in kinds]
    counts = [int((images == kind).sum()) for kind in kinds]
    kept = [k for k, (_, kind) in enumerate(sizes) if kind > 0]  # the others hardly bind
    patterns = list(_patterns([sizes[k] for k in kept], capacity, limit))
    if not patterns:
        return 0
    columns = np.array(patterns).T
    solved = linprog(
        np.ones(len(patterns)), A_ub=-columns, b_ub=[-counts[k] for k in kept], method="highs"
    )
    return int(np.ceil(solved.fun - 1e-6))


def _patterns(sizes: list[tuple[int, int]], capacity: int, limit: int) -> list[tuple[int, ...]]:
    """Every number of samples of each kind that fits a bin, the largest of the last kind only."""
    if not sizes:
        return []
    (length, count), rest = sizes[0], sizes[1:]
    most = min(capacity // length, limit // count)
    if not rest:
        return [(most,)]
    return [
        (number, *others)
        for number in range(most + 1)
        for others in _patterns(rest, capacity - number * length, limit - number * count)
    ]
