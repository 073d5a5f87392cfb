"""Checks of the loader's arguments for stages, and the loader they make."""

import multiprocessing
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast, get_args

from balancer.checks import check_choice, check_count
from balancer.errors import ArgumentError
from balancer.topology import Topology
from loaders.sample_errors import OnSampleError
from loaders.sampler import BalancedBatchSampler
from loaders.stage_loader import ReadSample, StageLoader
from loaders.stages.run import Order
from loaders.stages.stage import Kind, Stage, StartMethod, usable_cores
from loaders.worker_kind import measured_kind

__all__ = ["Workers", "make_stage_loader", "refuse_stage_options"]

Workers = Literal["torch", "thread", "process", "ray", "auto"]

_LOOK_AHEAD = 16
_MAX_BYTES = 1 << 30
_MEASURED = 4  # samples for each worker, half of them one by one


def refuse_stage_options(options: dict[str, Any]) -> None:
    """Refuse options of the stages where torch's workers read.

    Raises:
        ArgumentError: One is given.
    """
    for name, value in options.items():
        if value is not None:
            raise ArgumentError(
                f"{name} is {value!r}, workers is 'torch', whose workers have no stages; pass "
                "workers='thread', 'process', 'ray' or 'auto' beside it"
            )


def make_stage_loader(
    dataset: Any,
    batch_sampler: BalancedBatchSampler,
    collate_fn: Callable[[list[Any]], Any],
    *,
    workers: Workers,
    num_workers: int,
    stages: Sequence[Stage] | None,
    look_ahead: int | None,
    max_bytes: int | None,
    order: Order | None,
    trace: int | None,
    autoscale: bool | None,
    seed: int | None,
    on_sample_error: OnSampleError,
    timeout: float,
    persistent_workers: bool,
    multiprocessing_context: Any,
    unsupported: dict[str, Any],
) -> StageLoader:
    """The stage loader that the arguments of `BalancedDataLoader` describe.

    Warns where `order="ready"` undoes what the plan lines up over ranks.

    Raises:
        ArgumentError: An argument is not allowed, or goes with torch's workers only.
    """
    check_choice("workers", workers, get_args(Workers))
    check_count("num_workers", num_workers, least=0)
    for name, value in unsupported.items():
        if value:
            raise ArgumentError(
                f"{name} is {value!r}, workers is {workers!r}; {name} goes with workers='torch'"
            )
    if order == "ready":
        _warn_of_ranks_apart(batch_sampler.planner.topology)
    count = num_workers or usable_cores()
    kind = cast(Kind, workers)
    if workers == "auto":
        kind = "thread" if stages else _measured(dataset, batch_sampler, count)
    return StageLoader(
        dataset,
        batch_sampler,
        collate_fn,
        stages=stages,
        kind=kind,
        num_workers=count,
        look_ahead=_LOOK_AHEAD if look_ahead is None else look_ahead,
        max_bytes=_MAX_BYTES if max_bytes is None else max_bytes,
        order="plan" if order is None else order,
        start_method=_start_method(multiprocessing_context),
        trace=0 if trace is None else trace,
        autoscale=bool(autoscale),
        seed=seed,
        on_sample_error=on_sample_error,
        timeout=timeout,
        persistent_workers=persistent_workers,
    )


def _warn_of_ranks_apart(topology: Topology) -> None:
    """Readiness differs from rank to rank; the plan has like microbatches at the same time."""
    if topology.dp_size > 1 and topology.barrier != "step":
        warnings.warn(
            f"order is 'ready', the topology's barrier is {topology.barrier!r}: ranks that wait "
            "for each other in every microbatch run microbatches of like cost at the same time in "
            "the plan's order only; use order='plan', or barrier='step' if ranks wait once a step",
            stacklevel=4,
        )


def _measured(dataset: Any, batch_sampler: BalancedBatchSampler, num_workers: int) -> Kind:
    """Kind of worker for a dataset, by samples of the first step that is handed out."""
    epoch = batch_sampler.epoch
    planner = batch_sampler.planner
    ids, _ = planner.step_ids(epoch, planner.steps(epoch).first)
    keys = [(int(sample_id), epoch) for sample_id in ids[: _MEASURED * num_workers]]
    return measured_kind(ReadSample(dataset, seed=None), keys, num_workers)


def _start_method(context: Any) -> StartMethod:
    """How worker processes begin: as told, else forkserver, which no thread can disturb."""
    if context is None:
        return "forkserver"
    method = context if isinstance(context, str) else context.get_start_method()
    if method not in multiprocessing.get_all_start_methods():
        raise ArgumentError(
            f"multiprocessing_context is {context!r}; allowed: "
            f"{', '.join(multiprocessing.get_all_start_methods())}"
        )
    return cast(StartMethod, method)
