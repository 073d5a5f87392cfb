"""Token rules by the name of their family."""

import dataclasses
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

from balancer.errors import ArgumentError
from balancer.tokens.counts import TokenRule
from balancer.tokens.family import FamilyRule
from balancer.tokens.fixed import FixedImage
from balancer.tokens.internvl import InternVL
from balancer.tokens.llava_next import LlavaNext
from balancer.tokens.pixtral import Pixtral
from balancer.tokens.qwen_vl import QwenVL

__all__ = ["TOKEN_RULES", "token_rule"]

_FAMILIES: dict[str, Callable[..., FamilyRule]] = {
    "clip": partial(FixedImage, family="clip", image_size=224),
    "internvl": InternVL,
    "llava-1.5": FixedImage,
    "llava-next": LlavaNext,
    "mistral-small-3.1": Pixtral.mistral_small,
    "pixtral": Pixtral,
    "qwen2-vl": QwenVL.qwen2,
    "qwen2.5-vl": QwenVL.qwen2_5,
    "qwen3-vl": QwenVL.qwen3,
    "siglip": partial(FixedImage, family="siglip", image_size=384),
    "text-only": FamilyRule,
}

TOKEN_RULES: MappingProxyType[str, Callable[..., FamilyRule]] = MappingProxyType(_FAMILIES)
"""The known families: name to a callable that takes the family's settings."""


def token_rule(name: str, **settings: Any) -> TokenRule:
    """The token rule of a model family, with `settings` in place of its published ones.

    Raises:
        ArgumentError: The family is not known, or it has no such setting.

    Example:
        >>> import numpy as np
        >>> rule = token_rule("qwen2.5-vl", max_pixels=1280 * 28 * 28)
        >>> rule.images(np.array([1080]), np.array([1920])).tokens
        array([1222])
    """
    if name not in TOKEN_RULES:
        raise ArgumentError(
            f"name is {name!r}; known families are {', '.join(sorted(TOKEN_RULES))}; "
            "any other object with the methods of TokenRule can be used in place of a rule"
        )
    known = {field.name for field in dataclasses.fields(TOKEN_RULES[name]())} - {"family"}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ArgumentError(
            f"settings has {', '.join(unknown)}; {name} has {', '.join(sorted(known)) or 'none'}"
        )
    return TOKEN_RULES[name](**settings)
