"""Values between processes: a pickle and the large buffers beside it, sent through a pipe.

Pipes leave nothing behind, whichever side is killed; files of shared memory would. Buffers are
written from where they lie and read to where they stay, so a large array costs two copies.
"""

import io
import pickle
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

__all__ = ["receive", "send"]


def send(connection: "Connection[Any, Any]", value: Any) -> None:
    """Write a value; tensors on the CPU, NumPy arrays and bytes-like buffers are not copied.

    Raises:
        BrokenPipeError: The other side is gone.
        Exception: The value cannot be pickled; nothing was written.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    views = [buffer.raw() for buffer in buffers]
    connection.send_bytes(pickle.dumps([view.nbytes for view in views]))
    connection.send_bytes(stream.getbuffer())
    for view in views:
        if view.nbytes:
            connection.send_bytes(view)


def receive(connection: "Connection[Any, Any]") -> Any:
    """Read what `send` wrote; arrays and tensors are writable.

    Raises:
        EOFError: The other side is gone.
    """
    sizes: list[int] = pickle.loads(connection.recv_bytes())
    stream = connection.recv_bytes()
    buffers = [bytearray(size) for size in sizes]
    for buffer in buffers:
        if buffer:
            connection.recv_bytes_into(buffer)
    return pickle.loads(stream, buffers=buffers)


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
