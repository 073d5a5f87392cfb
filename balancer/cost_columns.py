"""What is asked of whole columns of costs, in memory or block by block."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.errors import SampleError

__all__ = ["check_legal_ids", "clipped_sum", "costs_fingerprint"]


def clipped_sum(values: NDArray[np.int64], limit: int, multiple: int) -> int:
    """Sum of values, each rounded up to a multiple and then cut to at most `limit`."""
    return int(np.minimum(-(-values // multiple) * multiple, limit).sum())


def check_legal_ids(
    illegal: NDArray[np.int64], because: str, sample_ids: NDArray[np.int64] | None
) -> None:
    """Refuse samples (all, or those given) that are among the `illegal` ids; see `Costs`."""
    if not illegal.size:
        return
    ids = illegal if sample_ids is None else np.intersect1d(sample_ids, illegal)
    if ids.size:
        shown = ", ".join(map(str, ids[:5])) + (", ..." if ids.size > 5 else "")
        raise SampleError(
            f"{because}; samples that the model cannot take: {shown} ({ids.size} in all); pass "
            'illegal="drop" to leave them out, resize the media, or use the token rule of your '
            "model",
            sample_ids=ids.tolist(),
        )


def costs_fingerprint(modules: tuple[str, ...], unit: str, hashes: Mapping[str, Any]) -> str:
    """Fingerprint of costs from a running SHA-256 of the bytes of each column, by its name."""
    digest = hashlib.sha256(repr((modules, unit)).encode())
    for name, column in hashes.items():
        digest.update(name.encode() + column.digest())
    return digest.hexdigest()
