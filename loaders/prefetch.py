"""Microbatches on their device: copied on a stream of their own while the one before is used."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["on_device"]


def on_device(
    microbatches: Iterable[Any], device: torch.device | str | None = None
) -> Iterator[Any]:
    """Microbatches with their tensors on `device`, one copied ahead where it is a CUDA device.

    On CUDA the tensors of the next microbatch are pinned and copied on a stream of their own while
    the present one is in use, and the current stream waits for that copy before it is handed out.
    On the CPU it is plain iteration. Mappings, lists, tuples and named tuples keep their type.

    A state taken from the loader counts what this iterator has taken from it: on CUDA one
    microbatch more than was handed out, so take states between steps from the loader directly or
    leave the copying to the model there.

    Args:
        microbatches: A loader, or the microbatches of a step.
        device: Where to; the current CUDA device if there is one, else the CPU.

    Example:
        >>> [batch["x"].device.type for batch in on_device([{"x": torch.ones(2)}], "cpu")]
        ['cpu']
    """
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if target.type != "cuda":
        for microbatch in microbatches:
            yield _mapped(microbatch, lambda tensor: tensor.to(target))
        return
    yield from _copied_ahead(microbatches, target)


def _copied_ahead(microbatches: Iterable[Any], device: torch.device) -> Iterator[Any]:
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copied(microbatch: Any) -> Any:
        with torch.cuda.stream(stream):
            return _mapped(
                microbatch, lambda tensor: tensor.pin_memory().to(device, non_blocking=True)
            )

    source = iter(microbatches)
    missing = object()
    ahead = next(source, missing)
    ahead = ahead if ahead is missing else copied(ahead)
    while ahead is not missing:
        torch.cuda.current_stream(device).wait_stream(stream)
        ready = _mapped(ahead, _used_by_current_stream)
        following = next(source, missing)
        ahead = following if following is missing else copied(following)
        yield ready
        del ready


def _used_by_current_stream(tensor: Tensor) -> Tensor:
    """Keep the allocator from giving the memory away before the current stream is done with it."""
    tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor


def _mapped(value: Any, change: Any) -> Any:
    """The value with every tensor in it changed, containers of the same type."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        items = {key: _mapped(item, change) for key, item in value.items()}
        return items if type(value) is dict else type(value)(items)  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    return value
