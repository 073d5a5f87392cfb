"""Checks of the loader's arguments: each refusal names the two that do not go together."""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import IterableDataset

from balancer.errors import ArgumentError
from balancer.modality_options import ModalitySync
from balancer.planner import Tail
from balancer.samples import SampleTable
from balancer.topology import Barrier, Layout, Limits, Modules, Topology, check_count
from loaders.sampler import BalancedBatchSampler

__all__ = [
    "checked_dataset",
    "rank_view",
    "refuse_reordering",
    "resolve_global_batch_size",
    "resolve_limits",
    "resolve_sizes",
    "resolve_tail",
    "resolve_topology",
]


def checked_dataset(dataset: Any) -> Any:
    """The dataset, if it is map-style.

    Raises:
        ArgumentError: It is an IterableDataset, or has no `__getitem__`.
    """
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise ArgumentError(
            f"dataset is a {type(dataset).__name__} without random access; a plan needs a "
            "map-style dataset: __getitem__ and one row of sizes a sample"
        )
    return dataset


def refuse_reordering(*, sampler: Any, batch_sampler: Any, in_order: bool) -> None:
    """Refuse the arguments of torch's DataLoader that would change the plan's order.

    Raises:
        ArgumentError: A sampler is given, or `in_order` is false.
    """
    if sampler is not None:
        other = "cost_model" if batch_sampler is None else "batch_sampler"
        raise ArgumentError(
            f"sampler and {other} exclude each other: the plan decides the order of the samples; "
            "leave sampler out, use shuffle and seed, or a torch Subset for a part of the data"
        )
    if not in_order:
        raise ArgumentError(
            "in_order is False, but the ranks of dp_size must run the plan's microbatches in the "
            "plan's order; leave it True"
        )


def rank_view(
    batch_sampler: Any, plan_arguments: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Refuse anything but the rank view of a BalancedBatchSampler, given by itself.

    Raises:
        ArgumentError: It is another sampler or the global view, or an argument of the plan is
            given beside it.
    """
    if not isinstance(batch_sampler, BalancedBatchSampler):
        raise ArgumentError(
            f"batch_sampler is a {type(batch_sampler).__name__} and cannot go with a plan by "
            "cost_model; allowed: a BalancedBatchSampler, or none and the arguments of the plan"
        )
    for name, value in plan_arguments.items():
        default = defaults[name]
        if value is not default and (default is None or value != default):  # an array may be given
            raise ArgumentError(
                f"batch_sampler and {name} are both given; the batch_sampler has its plan: give "
                f"{name} where it is made"
            )
    if batch_sampler.dp_rank is None:
        raise ArgumentError(
            "batch_sampler has dp_rank=None, the view of all ranks; make it with the dp_rank of "
            "this process"
        )


def resolve_sizes(dataset: Any, sizes: SampleTable | None) -> SampleTable:
    """The size table: as given, or the dataset's own `sizes`; never by reading the samples.

    Raises:
        ArgumentError: There is none, or it has another number of rows than the dataset.
    """
    table = sizes if sizes is not None else getattr(dataset, "sizes", None)
    if not isinstance(table, SampleTable):
        raise ArgumentError(
            f"sizes is {type(table).__name__} and dataset has no sizes of its own; give a "
            "SampleTable: SampleTable.from_lengths(lengths), SampleTable.from_arrays(...), or "
            "balancer.sizing.tables.table_from_parquet(path). The dataset is not read to find out"
        )
    if hasattr(dataset, "__len__") and len(dataset) != len(table):
        raise ArgumentError(
            f"sizes has {len(table)} rows, dataset has {len(dataset)} samples; row i must be the "
            "sizes of dataset[i]"
        )
    return table


def resolve_topology(
    collate_fn: Any,
    *,
    dp_size: int,
    num_microbatches: int,
    max_microbatches: int | None,
    max_tokens: int | None,
    max_patches: int | None,
    max_images: int | None,
    max_samples: int | None,
    limits: Limits | None,
    layout: Layout | None,
    barrier: Barrier,
    modules: Modules,
    modality_sync: ModalitySync | None,
) -> Topology:
    """Topology from the arguments that loaders over tables and over streams share.

    Raises:
        ArgumentError: An argument is not allowed or two do not go together.
    """
    maxima = {
        "max_tokens": max_tokens,
        "max_patches": max_patches,
        "max_images": max_images,
        "max_samples": max_samples,
    }
    return Topology(
        dp_size=dp_size,
        num_microbatches=num_microbatches,
        max_microbatches=max_microbatches,
        barrier=barrier,
        modules=modules,
        limits=resolve_limits(limits, layout, collate_fn, maxima),
        modality_sync=modality_sync,
    )


def resolve_global_batch_size(
    *,
    batch_size: int | None,
    global_batch_size: int | None,
    dp_size: int,
    num_microbatches: int,
) -> int:
    """Samples of a step over all ranks, from either way to say it.

    Raises:
        ArgumentError: Both are given, or neither, or one is not a positive whole number.
    """
    if (batch_size is None) == (global_batch_size is None):
        raise ArgumentError(
            f"batch_size is {batch_size}, global_batch_size is {global_batch_size}; give one: "
            "batch_size (average samples of a microbatch) or global_batch_size = batch_size * "
            "dp_size * num_microbatches (samples of an optimizer step over all ranks)"
        )
    if global_batch_size is not None:
        check_count("global_batch_size", global_batch_size)
        return global_batch_size
    check_count("batch_size", batch_size)
    check_count("num_microbatches", num_microbatches)
    return int(batch_size or 0) * dp_size * num_microbatches


def resolve_limits(
    limits: Limits | None,
    layout: Layout | None,
    collate_fn: Any,
    maxima: Mapping[str, Any],
) -> Limits:
    """Limits from a `Limits` object or from single maxima; the collator says layout and padding.

    Raises:
        ArgumentError: Both forms are given, or layout or padding are not the collator's.
    """
    given = [name for name, value in maxima.items() if value is not None]
    if limits is not None and given:
        raise ArgumentError(f"limits and {given[0]} are both given; put {given[0]} into limits")
    collated: Layout | None = getattr(collate_fn, "layout", None)
    names = ("pad_sample_to", "pad_microbatch_to")
    padding = {name: getattr(collate_fn, name) for name in names if hasattr(collate_fn, name)}
    if limits is None:
        limits = Limits(layout=layout or collated or "packed", **padding, **maxima)
    elif layout is not None and layout != limits.layout:
        raise ArgumentError(f"layout is {layout!r}, limits has layout {limits.layout!r}; give one")
    if collated is not None and limits.layout != collated:
        raise ArgumentError(
            f"layout is {limits.layout!r}, but collate_fn makes {collated} microbatches; limits "
            f"must be checked on what is allocated: layout={collated!r}"
        )
    for name, value in padding.items():
        if getattr(limits, name) != value:
            raise ArgumentError(
                f"{name} is {value} in collate_fn, {getattr(limits, name)} in limits; limits must "
                f"be checked on what is allocated: give limits {name}={value}"
            )
    return limits


def resolve_tail(tail: Tail | None, drop_last: bool | None) -> Tail:
    """Tail policy from either way to say it; `drop_last=False` repeats samples, as torch does.

    Raises:
        ArgumentError: They contradict each other.
    """
    if drop_last is None:
        return tail or "drop"
    if tail is None:
        return "drop" if drop_last else "pad"
    if drop_last != (tail == "drop"):
        raise ArgumentError(f"drop_last is {drop_last}, tail is {tail!r}; give one of them")
    return tail
