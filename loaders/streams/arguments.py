"""Checks of a stream's arguments."""

from collections.abc import Generator, Mapping
from typing import Any, get_args

from balancer.errors import ArgumentError
from balancer.modality_options import ModalitySync
from balancer.planner import Illegal
from balancer.step_planner import Oversize
from balancer.topology import Barrier, Topology, check_choice, check_count

__all__ = [
    "check_stream",
    "check_sync",
    "microbatches_per_epoch",
    "steps_of_window",
    "stream_options",
]


_READING = (
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
)


def stream_options(dataset: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What of `BalancedDataLoader`'s arguments a stream takes.

    Raises:
        ArgumentError: One is missing, or one only goes with a map-style dataset.

    Example:
        >>> stream_options([], {"size_fn": len, "window_size": 8, "shuffle": False})
        {'size_fn': <built-in function len>, 'window_size': 8}
    """
    kind = type(dataset).__name__
    missing = [name for name in ("size_fn", "window_size") if options.get(name) is None]
    if missing:
        raise ArgumentError(
            f"dataset is a {kind} without random access; give {' and '.join(missing)} to plan over "
            "windows of its samples, or a map-style dataset: __getitem__ and one row of sizes a "
            "sample"
        )
    taken = {name: value for name, value in options.items() if name not in _MAP_STYLE}
    if taken.get("group_ids", ()) is None:
        del taken["group_ids"]
    for name in _MAP_STYLE:
        value = options.get(name)
        if value not in (None, False) and (name, value) != ("in_order", True):
            raise ArgumentError(
                f"{name} is {value!r}, but dataset is a {kind}: {_MAP_STYLE[name]}; leave it out"
            )
    return taken


_MAP_STYLE = {
    "shuffle": "its order is the dataset's own, so shuffle there",
    "seed": "its order is the dataset's own, so seed it there",
    "in_order": "its microbatches come in the order of the plan",
    "sizes": "sizes come from size_fn as samples are read",
    "sampler": "it has no indices to sample",
    "batch_sampler": "it has no indices to sample",
    "step_log": "read stats() after a step",
    "window_steps": "window_size says how far samples may move",
    "mesh": "give group=mesh.get_group()",
    "dp_rank": "ranks must agree where a stream ends, so give a group",
    "dp_size": "ranks must agree where a stream ends, so give a group",
    "pin_memory": "pin what the loader yields, with tensor.pin_memory()",
    "pin_memory_device": "pin what the loader yields, with tensor.pin_memory()",
}


def check_stream(
    dataset: Any,
    size_fn: Any,
    barrier: Barrier,
    oversize: Oversize,
    illegal: Illegal,
    steps_per_epoch: int | None,
    options: Mapping[str, Any],
) -> None:
    """Refuse what no stream can be planned with.

    Raises:
        ArgumentError: Naming the argument.
    """
    if "group_ids" in options:
        raise ArgumentError(
            f"group_ids is a {type(options['group_ids']).__name__}, but the samples of a stream "
            "have no ids before they are read; give a map-style dataset to keep samples together, "
            "or let the stream yield each group as one sample"
        )
    unknown = sorted(set(options) - set(_READING))
    if unknown:
        raise ArgumentError(
            f"{unknown[0]} is no argument of a stream's loader; those of torch that it takes: "
            f"num_workers, persistent_workers, {', '.join(_READING)}"
        )
    once = hasattr(dataset, "__next__") and (
        isinstance(dataset, Generator) or type(dataset).__module__ in ("builtins", "itertools")
    )
    if not hasattr(dataset, "__iter__") or once:
        raise ArgumentError(
            f"dataset is a {type(dataset).__name__}; allowed: an iterable that begins anew each "
            "time, such as a torch IterableDataset; wrap a generator in a class with __iter__"
        )
    if not callable(size_fn):
        raise ArgumentError(
            f"size_fn is {type(size_fn).__name__}; give a function that returns the size of a "
            'sample, such as lambda sample: {"text_tokens": len(sample["input_ids"])}'
        )
    if barrier == "pipeline":
        raise ArgumentError(
            'barrier is "pipeline", which needs a map-style dataset and a size table; allowed '
            'over streams: "step", "microbatch"'
        )
    check_choice("oversize", oversize, get_args(Oversize))
    check_choice("illegal", illegal, get_args(Illegal))
    if steps_per_epoch is not None:
        check_count("steps_per_epoch", steps_per_epoch)


def check_sync(modality_sync: ModalitySync | None, *, moves: bool) -> None:
    """Refuse what takes samples of other ranks where samples stay on theirs.

    Raises:
        ArgumentError: Modalities are to be spread over ranks that keep their samples.
    """
    if modality_sync in ("spread", "uniform") and not moves:
        raise ArgumentError(
            f"modality_sync is {modality_sync!r}, for which samples must change ranks; use "
            'rebalance(), or "dummy"'
        )


def steps_of_window(window_size: int, global_batch_size: int, topology: Topology) -> int:
    """Whole steps in a window.

    Raises:
        ArgumentError: A rank's share of a step is no whole number, or too little, or the window is.

    Example:
        >>> steps_of_window(100, 64, Topology(dp_size=2))
        3
    """
    check_count("window_size", window_size)
    if global_batch_size % topology.dp_size:
        raise ArgumentError(
            f"global_batch_size is {global_batch_size}, not a multiple of the {topology.dp_size} "
            "ranks; each reads as many samples a step"
        )
    size = global_batch_size // topology.dp_size
    if size < topology.num_microbatches:
        raise ArgumentError(
            f"global_batch_size is {global_batch_size}, {size} samples a rank, fewer than "
            f"num_microbatches={topology.num_microbatches}; every microbatch needs one"
        )
    if window_size < size:
        raise ArgumentError(
            f"window_size is {window_size}, less than the {size} samples of a rank's step; a "
            "window holds at least one step, better several"
        )
    return window_size // size


def microbatches_per_epoch(topology: Topology, steps_per_epoch: int | None) -> int:
    """Microbatches of a rank in an epoch of so many steps.

    Raises:
        TypeError: The number of steps is not given, or limits may ask for more microbatches.
    """
    fixed = topology.max_microbatches == topology.num_microbatches or not topology.limits.given
    if steps_per_epoch is None or not fixed:
        what = "steps_per_epoch" if steps_per_epoch is None else "max_microbatches=num_microbatches"
        raise TypeError(
            f"a stream does not know its length in microbatches without {what}; give it, or do not "
            "ask for the length"
        )
    return steps_per_epoch * topology.num_microbatches
