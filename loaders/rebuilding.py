"""Notices frameworks that build a batch sampler anew, as they would one of torch's."""

from typing import Any

from balancer.errors import ArgumentError
from balancer.planner import EpochPlanner

__all__ = ["refuse_rebuilding"]


def refuse_rebuilding(planner: Any, *, batch_size: Any, drop_last: Any) -> None:
    """Refuse what torch's BatchSampler takes: a sampler, `batch_size` and `drop_last`.

    Lightning calls the class of a batch sampler with these to put a DistributedSampler in, which
    would share out the samples without the plan.

    Raises:
        ArgumentError: The planner is none, or one of the others is given.
    """
    if isinstance(planner, EpochPlanner) and batch_size is None and drop_last is None:
        return
    raise ArgumentError(
        f"planner is a {type(planner).__name__}, batch_size is {batch_size}, drop_last is "
        f"{drop_last}; allowed: an EpochPlanner, which has the other two as global_batch_size and "
        "tail. If Lightning builds the batch sampler anew, give Trainer(use_distributed_sampler="
        "False), as the plan shares out the samples by itself; for Trainer.predict give it a "
        "BalancedDataLoader, which it leaves as it is"
    )
