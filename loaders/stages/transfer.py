"""Values between processes: a pickle and the large buffers beside it, sent through a pipe.

Pipes leave nothing behind, whichever side is killed; files of shared memory would. Buffers are
written from where they lie and read to where they stay, so a large array costs two copies. An
anonymous memfd passed through a socket leaves nothing either, and was no faster: its pages are
written once and mapped once more.
"""

import io
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["packed", "parts_of", "receive", "send", "write"]

Part = bytes | memoryview

_HEADER = struct.Struct("<QQ")  # buffers, bytes of their sizes and of the pickle together
_MOST_PARTS = 512  # of one write; systems allow 1024


def send(connection: socket.socket, value: Any) -> None:
    """Write a value; tensors on the CPU, NumPy arrays and bytes-like buffers are not copied.

    Raises:
        BrokenPipeError: The other side is gone.
        Exception: The value cannot be pickled; nothing was written.
    """
    write(connection, parts_of(value))


def parts_of(value: Any) -> list[Part]:
    """What `write` writes for a value; large buffers are where they were.

    Raises:
        Exception: The value cannot be pickled.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    raw = [buffer.raw() for buffer in buffers]
    sizes = struct.pack(f"<{len(raw)}Q", *(part.nbytes for part in raw))
    header = _HEADER.pack(len(raw), len(sizes) + stream.tell())
    return [header, sizes, stream.getbuffer(), *raw]


def write(connection: socket.socket, parts: Sequence[Part]) -> None:
    """Write parts one after another, with as few calls as there can be.

    Raises:
        BrokenPipeError: The other side is gone.
    """
    rest = [memoryview(part) for part in parts if len(part)]
    while rest:
        count = os.writev(connection.fileno(), rest[:_MOST_PARTS])
        whole = 0
        while whole < len(rest) and count >= rest[whole].nbytes:
            count -= rest[whole].nbytes
            whole += 1
        rest = rest[whole:]
        if count:
            rest[0] = rest[0][count:]


def receive(connection: socket.socket) -> Any:
    """Read what `send` wrote; arrays and tensors are writable.

    Raises:
        EOFError: The other side is gone.
    """
    num_buffers, rest = _HEADER.unpack(_read(connection, _HEADER.size))
    first = _read(connection, rest)
    sizes = struct.unpack_from(f"<{num_buffers}Q", first)
    buffers = [_read(connection, size) for size in sizes]
    return pickle.loads(first[8 * num_buffers :], buffers=buffers)


def packed(value: Any) -> bytes:
    """A pickle from which arrays and tensors come back writable, wherever it is kept meanwhile."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=5).dump(value)
    return stream.getvalue()


def _read(connection: socket.socket, size: int) -> memoryview:
    # Waiting for all of it at once takes the interpreter's lock once, not for every part.
    whole = part = np.empty(size, np.uint8).data
    while part.nbytes:
        count = connection.recv_into(part, part.nbytes, socket.MSG_WAITALL)
        if not count:
            raise EOFError
        part = part[count:]
    return whole


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
