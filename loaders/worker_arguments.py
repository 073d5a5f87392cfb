"""Checks of the arguments that go to torch's DataLoader as they are."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import torch

from balancer.errors import ArgumentError
from balancer.topology import check_count

__all__ = ["worker_options"]


def worker_options(
    *,
    num_workers: int,
    pin_memory: bool,
    timeout: float,
    worker_init_fn: Callable[[int], None] | None,
    multiprocessing_context: Any,
    generator: torch.Generator | None,
    prefetch_factor: int | None,
    persistent_workers: bool,
    pin_memory_device: str,
) -> dict[str, Any]:
    """Options of torch's DataLoader, those that need workers left out where there are none.

    torch refuses some of these with `num_workers=0`. Wrappers and configurations give them always,
    and they change nothing that the loader hands out, so they are checked and have no effect.

    Raises:
        ArgumentError: A value is not allowed, or two do not go together.
    """
    check_count("num_workers", num_workers, least=0)
    if prefetch_factor is not None:
        check_count("prefetch_factor", prefetch_factor)
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 <= timeout < float("inf"):
        raise ArgumentError(f"timeout is {timeout!r}; allowed: seconds >= 0, 0 waits for ever")
    for name, value in (("pin_memory", pin_memory), ("persistent_workers", persistent_workers)):
        if not isinstance(value, bool):
            raise ArgumentError(f"{name} is {value!r}; allowed: True and False")
    if worker_init_fn is not None and not callable(worker_init_fn):
        raise ArgumentError(f"worker_init_fn is {worker_init_fn!r}; allowed: a function, or None")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ArgumentError(f"generator is {generator!r}; allowed: a torch.Generator, or None")
    if pin_memory_device and not pin_memory:
        raise ArgumentError(
            f"pin_memory_device is {pin_memory_device!r}, pin_memory is False; pass "
            "pin_memory=True too, or leave pin_memory_device out"
        )
    _check_context(multiprocessing_context)
    options: dict[str, Any] = {
        "num_workers": num_workers,
        "pin_memory": pin_memory,
        "pin_memory_device": pin_memory_device,
        "generator": generator,
        "worker_init_fn": worker_init_fn,
    }
    if num_workers:
        options |= {
            "timeout": timeout,
            "multiprocessing_context": multiprocessing_context,
            "prefetch_factor": prefetch_factor,
            "persistent_workers": persistent_workers,
        }
    return options


def _check_context(context: Any) -> None:
    if context is None or isinstance(context, multiprocessing.context.BaseContext):
        return
    allowed = multiprocessing.get_all_start_methods()
    if context not in allowed:
        raise ArgumentError(
            f"multiprocessing_context is {context!r}; allowed: {', '.join(map(repr, allowed))}, or "
            "what multiprocessing.get_context returned"
        )
