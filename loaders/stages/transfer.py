"""Values between processes: a pickle and the large buffers beside it, sent through a pipe.

Pipes leave nothing behind, whichever side is killed; files of shared memory would. Buffers are
written from where they lie and read to where they stay, so a large array costs two copies. An
anonymous memfd passed through a socket leaves nothing either, and was no faster: its pages are
written once and mapped once more.
"""

import io
import os
import pickle
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["packed", "receive", "send"]


def send(connection: "Connection[Any, Any]", value: Any) -> None:
    """Write a value; tensors on the CPU, NumPy arrays and bytes-like buffers are not copied.

    Raises:
        BrokenPipeError: The other side is gone.
        Exception: The value cannot be pickled; nothing was written.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    parts = [stream.getbuffer(), *(buffer.raw() for buffer in buffers)]
    connection.send_bytes(pickle.dumps([part.nbytes for part in parts]))
    for part in parts:
        _write(connection.fileno(), part)


def receive(connection: "Connection[Any, Any]") -> Any:
    """Read what `send` wrote; arrays and tensors are writable.

    Raises:
        EOFError: The other side is gone.
    """
    sizes: list[int] = pickle.loads(connection.recv_bytes())
    stream, *buffers = [np.empty(size, np.uint8).data for size in sizes]
    for part in (stream, *buffers):
        _read(connection.fileno(), part)
    return pickle.loads(stream, buffers=buffers)


def packed(value: Any) -> bytes:
    """A pickle from which arrays and tensors come back writable, wherever it is kept meanwhile."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=5).dump(value)
    return stream.getvalue()


def _write(descriptor: int, part: memoryview) -> None:
    while part.nbytes:
        part = part[os.write(descriptor, part) :]


def _read(descriptor: int, part: memoryview) -> None:
    # `Connection.recv_bytes_into` makes a new buffer of all that is left for every read of a few
    # hundred kilobytes, which is several times slower.
    while part.nbytes:
        count = os.readv(descriptor, [part])
        if not count:
            raise EOFError
        part = part[count:]


class _Pickler(pickle.Pickler):
    """Pickles plain tensors on the CPU as buffers; torch's own way would copy them twice more."""

    def reducer_override(self, value: Any) -> Any:
        plain = type(value) is Tensor and value.layout == torch.strided
        if not plain or value.device.type != "cpu" or value.requires_grad or value.is_quantized:
            return NotImplemented
        flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        data = flat.view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(data), value.dtype, tuple(value.shape))


def _tensor(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not len(buffer):
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=torch.uint8).view(dtype).reshape(shape)
