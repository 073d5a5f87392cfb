"""The state of a sampler as plain values, and whether a saved one belongs here."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Literal

import numpy as np

from balancer.epoch_rest import EpochRest
from balancer.errors import StateError
from balancer.planner import EpochPlanner
from balancer.resume import rest_after, resumed
from loaders.progress import Position

__all__ = ["OnTopologyChange", "load_state", "save_state", "whole"]

OnTopologyChange = Literal["error", "replan"]

_FORMAT = 1
_DATA = ("num_samples", "costs", "version", "seed", "shuffle")
"""What must be the same in any case: the order of the epoch, and what each id stands for."""


def save_state(planner: EpochPlanner, position: Position) -> dict[str, Any]:
    """A few numbers, two hashes and the settings; the same size for any dataset."""
    rest = planner.rest
    return {
        "format": _FORMAT,
        "position": asdict(position),
        "num_samples": len(planner.costs),
        "costs": planner.costs_fingerprint,
        "settings": planner.settings,
        "rest": rest.to_json() if rest is not None and rest.epoch == position.epoch else None,
    }


def load_state(
    planner: EpochPlanner, state: Any, on_topology_change: OnTopologyChange
) -> tuple[EpochPlanner, Position]:
    """The planner that goes on, and where: at the begin of a step if settings have changed.

    Raises:
        StateError: The state is none of ours, or another dataset's, or (unless topology changes
            are planned for) another configuration's; every difference is listed.
    """
    position, rest = _parsed(state)
    saved, here = _configuration(state), _configuration(save_state(planner, Position()))
    differing = [name for name in here | saved if saved.get(name) != here.get(name)]
    fatal = [name for name in differing if name in _DATA]
    if fatal or (differing and on_topology_change == "error"):
        raise StateError(_difference(differing, fatal, saved, here))
    planner = whole(planner)
    try:
        before = (
            EpochPlanner.from_settings(planner.costs, state["settings"]) if differing else planner
        )
        if rest is not None:
            before = resumed(before, rest)
        steps = before.steps(position.epoch)
    except (TypeError, KeyError) as error:
        raise StateError(f"state is damaged: {error!r}") from error
    if not steps.first <= position.step < steps.end:
        raise StateError(
            f"state is damaged: step {position.step}, where epoch {position.epoch} has steps "
            f"{steps.first} to {steps.end - 1}"
        )
    return _replanned(planner, before, position) if differing else (before, position)


def whole(planner: EpochPlanner) -> EpochPlanner:
    """The planner without the rest of an epoch that others began."""
    return planner.with_rest(None, np.zeros(0, np.int64))


def _replanned(
    planner: EpochPlanner, before: EpochPlanner, position: Position
) -> tuple[EpochPlanner, Position]:
    """The planner with what `before` leaves of the epoch; a step that is not whole is given back.

    Where what is left makes no step, the next epoch is next.
    """
    position = position.begin_of_step
    if position.step == 0:
        return planner, position
    rest = rest_after(before, epoch=position.epoch, step=position.step)
    planner = resumed(planner, replace(rest, microbatches=position.microbatches))
    over = planner.steps(position.epoch).end == position.step
    return planner, Position(epoch=position.epoch + 1) if over else position


def _configuration(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"num_samples": state["num_samples"], "costs": state["costs"], **state["settings"]}


def _parsed(state: Any) -> tuple[Position, EpochRest | None]:
    """Position and rest of a state.

    Raises:
        StateError: It is not one that `save_state` of this version made.
    """
    if not isinstance(state, Mapping) or "format" not in state:
        raise StateError(
            f"state is {type(state).__name__} without a format; allowed: what state_dict of a "
            "BalancedBatchSampler or BalancedDataLoader returned"
        )
    if state["format"] != _FORMAT:
        raise StateError(
            f"state has format {state['format']!r}; this version reads {_FORMAT}: load it with "
            "the version that saved it"
        )
    try:
        position = Position(**state["position"])
        rest = None if state["rest"] is None else EpochRest.from_json(state["rest"])
        names = ("num_samples", "costs", "settings")
        missing = [name for name in names if name not in state]
    except (KeyError, TypeError) as error:
        raise StateError(f"state is damaged: {error!r}") from error
    numbers = [getattr(position, each.name) for each in fields(Position)]
    if missing or not all(type(number) is int and number >= 0 for number in numbers):
        raise StateError(f"state is damaged: position {state['position']}, missing {missing}")
    return position, rest


def _difference(
    differing: list[str], fatal: list[str], saved: dict[str, Any], here: dict[str, Any]
) -> str:
    lines = [
        f"  {name}: {_shown(saved, name)} in the state, {_shown(here, name)} here"
        for name in differing
    ]
    cure = (
        "the order of the samples or what they are has changed, so there is no place to go on from"
        if fatal
        else 'give what the state has, or pass on_topology_change="replan" to deliver what is left '
        "of the epoch under the new configuration, from the next step on"
    )
    return "state does not belong here:\n" + "\n".join(lines) + f"\n{cure}"


def _shown(configuration: dict[str, Any], name: str) -> str:
    return repr(configuration[name]) if name in configuration else "its default"
