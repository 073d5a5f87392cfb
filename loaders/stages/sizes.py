"""size_of: bytes of what a stage returned."""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

__all__ = ["size_of"]


def size_of(value: Any) -> int:
    """Host bytes of a result: tensors, arrays, bytes, text, Pillow images, and containers of them.

    Tensors on a device count nothing. An array that shares memory with another counts in full.
    Objects that it does not know count as `sys.getsizeof` says.

    Example:
        >>> size_of({"pixels": np.zeros((2, 3), np.float32), "text": b"four"})
        28
    """
    if isinstance(value, Tensor):
        return value.nbytes if value.device.type == "cpu" else 0
    if isinstance(value, (np.ndarray, np.generic, memoryview)):
        return value.nbytes
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(size_of(item) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return sum(size_of(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(size_of(getattr(value, field.name)) for field in dataclasses.fields(value))
    return _image_bytes(value) or sys.getsizeof(value)


def _image_bytes(value: Any) -> int:
    """Bytes of a decoded Pillow image, without importing Pillow; 0 for anything else."""
    bands, size = getattr(value, "getbands", None), getattr(value, "size", None)
    if not callable(bands) or not isinstance(size, tuple):
        return 0
    width, height = size
    item = 4 if getattr(value, "mode", "") in ("I", "F") else 1
    return int(width) * int(height) * len(bands()) * item
