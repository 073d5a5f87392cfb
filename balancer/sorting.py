"""Stable order of whole numbers, by sorting unique keys."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["stable_order"]


def stable_order(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions that sort `keys` (>= 0) ascending, equal keys in their given order.

    Packs each key with its position into one unique number wherever 63 bits allow, which sorts
    several times faster than a stable argsort and to the same result on any host.

    Example:
        >>> stable_order(np.array([3, 1, 3, 0]))
        array([3, 1, 0, 2])
    """
    bits = max(1, (len(keys) - 1).bit_length())
    if len(keys) and int(keys.max()) >= 2 ** (63 - bits):
        return np.argsort(keys, kind="stable")
    packed = (keys << np.int64(bits)) | np.arange(len(keys))
    packed.sort()
    return packed & np.int64(2**bits - 1)
