"""What a topology may ask for so that no rank skips a module that others run."""

from collections.abc import Mapping
from typing import Literal, get_args

from balancer.checks import check_choice
from balancer.errors import ArgumentError

__all__ = ["ModalitySync", "check_modality_sync"]

ModalitySync = Literal["spread", "uniform", "dummy"]


def check_modality_sync(
    modality_sync: object,
    barrier: str,
    dummies: Mapping[str, Mapping[str, int]],
    *,
    deferral: bool,
    max_in_flight: int | None,
) -> None:
    """Refuse a choice that is unknown, cannot be kept under the barrier, or lacks its sizes.

    Raises:
        ArgumentError: Naming the argument, the value and what is allowed.
    """
    if modality_sync is None:
        if dummies:
            raise ArgumentError(
                f"limits.dummies is {dict(dummies)!r} without modality_sync; pass "
                'modality_sync="dummy", "spread" or "uniform", or leave the dummies out'
            )
        return
    check_choice("modality_sync", modality_sync, get_args(ModalitySync))
    if modality_sync == "dummy" and not dummies:
        raise ArgumentError(
            'modality_sync is "dummy" without limits.dummies; give the size of the dummy of each '
            'module, such as Limits(dummies={"vision": {"tokens": 4, "patches": 16}})'
        )
    if modality_sync != "dummy" and barrier == "pipeline":
        raise ArgumentError(
            f'modality_sync is {modality_sync!r} under barrier="pipeline", whose microbatches are '
            'ordered by simulation alone; allowed there: "dummy" or None'
        )
    for name, value in (("deferral", deferral), ("max_in_flight", max_in_flight)):
        if value:
            raise ArgumentError(
                f"modality_sync is {modality_sync!r} with {name}={value!r}, which does not count "
                "dummies; leave one of them out"
            )
