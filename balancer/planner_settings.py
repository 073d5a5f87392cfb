"""What a planner was given beside the costs, as plain values that JSON can hold.

Only what differs from its default is there: settings stay short, and those saved before an option
existed mean its default.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from balancer.limits import Limits
from balancer.topology import Topology

__all__ = ["topology_from", "topology_settings", "without_defaults"]


def without_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not their defaults, tuples as lists."""
    given = {
        name: value
        for name, value in values.items()
        if name not in defaults or value != defaults[name]
    }
    plain: dict[str, Any] = json.loads(json.dumps(given))
    return plain


def topology_settings(topology: Topology) -> dict[str, Any]:
    """Topology and limits by the names of their arguments.

    Example:
        >>> topology_settings(Topology(dp_size=2, limits=Limits(max_tokens=8)))
        {'dp_size': 2, 'max_tokens': 8}
    """
    values = {each.name: getattr(topology, each.name) for each in fields(Topology)}
    limits = _limit_values(values.pop("limits"))
    values["rank_limits"] = tuple(_limit_values(each) for each in topology.rank_limits)
    return without_defaults(values, _defaults(Topology)) | limits


def topology_from(settings: Mapping[str, Any]) -> Topology:
    """The topology of some settings; names that are not its own are passed over.

    Example:
        >>> topology_from({"dp_size": 2, "max_tokens": 8, "seed": 3}).limits.max_tokens
        8
    """
    own = {each.name: settings[each.name] for each in fields(Topology) if each.name in settings}
    own["rank_limits"] = tuple(Limits(**values) for values in own.get("rank_limits", ()))
    limits = {each.name: settings[each.name] for each in fields(Limits) if each.name in settings}
    return Topology(**own, limits=Limits(**limits))


def _limit_values(limits: Limits) -> dict[str, Any]:
    values = {each.name: getattr(limits, each.name) for each in fields(Limits)}
    return without_defaults(values, _defaults(Limits))


def _defaults(cls: type[Limits] | type[Topology]) -> dict[str, Any]:
    made = {
        each.name: each.default_factory()
        for each in fields(cls)
        if each.default_factory is not MISSING
    }
    return made | {each.name: each.default for each in fields(cls) if each.default is not MISSING}
