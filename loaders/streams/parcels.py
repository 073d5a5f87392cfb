"""Parcels: samples as one tensor of bytes, and back; tensors and arrays are not pickled.

Pickle protocol 5 hands out the memory of arrays beside the stream (PEP 574, 2018). It is copied
once into the parcel; the receiver's arrays lie in the parcel that arrived.
"""

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from balancer.errors import BalancerError

__all__ = ["pack_parcel", "unpack_parcel"]

_ALIGNMENT = 64


def pack_parcel(samples: Sequence[Any]) -> Tensor:
    """Samples as a uint8 tensor: a header of int64 sizes, the pickle, and each buffer, aligned.

    Raises:
        BalancerError: A sample cannot be pickled.

    Example:
        >>> samples = [{"ids": torch.arange(3), "text": "a"}, {"ids": np.arange(2.0)}]
        >>> unpack_parcel(pack_parcel(samples))
        [{'ids': tensor([0, 1, 2]), 'text': 'a'}, {'ids': array([0., 1.])}]
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    try:
        _Pickler(stream, buffers.append).dump(list(samples))
        parts = [np.frombuffer(stream.getbuffer(), np.uint8)]
        parts += [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    except Exception as error:
        raise BalancerError(
            f"samples cannot be sent to another rank ({type(error).__name__}: {error}); they must "
            "be picklable, and their arrays contiguous"
        ) from error
    sizes = np.array([len(part) for part in parts], np.int64)
    header = np.concatenate([[len(sizes)], sizes]).astype(np.int64).view(np.uint8)
    begins, end = _places(len(header), sizes)
    parcel = np.zeros(end, np.uint8)
    parcel[: len(header)] = header
    for begin, part in zip(begins, parts, strict=True):
        parcel[begin : begin + len(part)] = part
    return torch.from_numpy(parcel)


def unpack_parcel(parcel: Tensor) -> list[Any]:
    """Samples of a parcel; their arrays and tensors are views of it."""
    array: NDArray[np.uint8] = parcel.numpy()
    header_size = 8 * (1 + int(_int64(array[:8])[0]))
    sizes = _int64(array[8:header_size])
    begins, _ = _places(header_size, sizes)
    memory = memoryview(array.data)
    first, *rest = (
        memory[begin : begin + int(size)] for begin, size in zip(begins, sizes, strict=True)
    )
    samples: list[Any] = pickle.loads(first, buffers=rest)
    return samples


def _int64(array: NDArray[Any]) -> NDArray[np.int64]:
    return np.frombuffer(array.tobytes(), np.int64)


def _places(header_size: int, sizes: NDArray[Any]) -> tuple[list[int], int]:
    """Where each part begins, and where the last one ends; all at multiples of the alignment."""
    begins, end = [], -(-header_size // _ALIGNMENT) * _ALIGNMENT
    for size in sizes.tolist():
        begins.append(end)
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return begins, end


class _Pickler(pickle.Pickler):
    """Pickles tensors of the CPU by their memory; torch's own way copies it into the stream."""

    def __init__(self, stream: io.BytesIO, keep: Callable[[pickle.PickleBuffer], Any]) -> None:
        super().__init__(stream, protocol=5, buffer_callback=keep)

    def reducer_override(self, value: Any) -> Any:
        plain = type(value) is Tensor and value.device.type == "cpu"
        if not plain or value.layout != torch.strided or value.is_quantized or value.is_complex():
            return NotImplemented
        if not value.numel():
            return _tensor, (b"", value.dtype, tuple(value.shape))
        memory = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(memory), value.dtype, tuple(value.shape))


def _tensor(memory: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not len(memory):
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype).reshape(shape)
