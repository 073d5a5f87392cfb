"""Keys of a model's configuration dictionary, read with errors that name what is missing."""

from collections.abc import Mapping
from math import prod
from typing import Any

from balancer.errors import ArgumentError

__all__ = ["Config", "number", "optional", "present", "side", "whole"]

Config = Mapping[str, Any]
"""A `config.json` of Hugging Face, or a part of it, as a dictionary."""


def present(config: Config, where: str, *keys: str) -> Any:
    """Value of the first of the keys that is there and not null; `where` names the dictionary.

    Raises:
        ArgumentError: None is there.

    Example:
        >>> present({"in_chans": 3}, "vision_config", "in_channels", "in_chans")
        3
    """
    for key in keys:
        if config.get(key) is not None:
            return config[key]
    raise ArgumentError(
        f"{where} lacks {' or '.join(keys)} (model_type {config.get('model_type')!r}); a saved "
        "config.json leaves out what equals the defaults of its class: pass "
        "AutoConfig.from_pretrained(path).to_dict() of transformers, or add the key"
    )


def number(config: Config, where: str, key: str) -> float:
    """A number that must be there."""
    return float(present(config, where, key))


def whole(config: Config, where: str, *keys: str) -> int:
    """A whole number that must be there, under one of the keys."""
    return int(present(config, where, *keys))


def optional(config: Config, *keys: str) -> int | None:
    """A whole number under the first key that is there, or `None`."""
    for key in keys:
        if config.get(key) is not None:
            return int(config[key])
    return None


def side(vision: Config, *keys: str) -> int:
    """Side of a square patch or image, given as one number or as (height, width)."""
    value = present(vision, "vision_config", *keys)
    sides = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
    return int(prod(sides) ** 0.5)
