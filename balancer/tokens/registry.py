"""Token rules by the name of their family."""

import dataclasses
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

from balancer.errors import ArgumentError
from balancer.tokens.counts import TokenRule
from balancer.tokens.ernie_vl import ErnieVL
from balancer.tokens.family import FamilyRule
from balancer.tokens.fixed import FixedImage
from balancer.tokens.gemma3 import Gemma3
from balancer.tokens.gemma4 import Gemma4
from balancer.tokens.glm_vl import GlmVL
from balancer.tokens.idefics3 import Idefics3
from balancer.tokens.internvl import InternVL
from balancer.tokens.llava_next import LlavaNext
from balancer.tokens.llava_onevision import LlavaOnevision
from balancer.tokens.minicpm_v import MiniCPMV
from balancer.tokens.mllama import Mllama
from balancer.tokens.ovis2 import Ovis2
from balancer.tokens.pixtral import Pixtral
from balancer.tokens.qwen_omni import QwenOmni
from balancer.tokens.qwen_vl import QwenVL
from balancer.tokens.siglip2 import Siglip2
from balancer.tokens.whisper import Qwen2Audio, Whisper

__all__ = ["TOKEN_RULES", "token_rule"]

_FAMILIES: dict[str, Callable[..., FamilyRule]] = {
    "clip": partial(FixedImage, family="clip", image_size=224),
    "ernie-4.5-vl": ErnieVL,
    "gemma-3": Gemma3,
    "gemma-4": Gemma4,
    "glm-4.1v": GlmVL,
    "glm-4.6v": GlmVL.glm_4_6v,
    "idefics3": Idefics3,
    "internvl": InternVL,
    "llama-3.2-vision": Mllama,
    "llava-1.5": FixedImage,
    "llava-next": LlavaNext,
    "llava-onevision": LlavaOnevision,
    "minicpm-v-4.6": MiniCPMV,
    "mistral-small-3.1": Pixtral.mistral_small,
    "ovis2": Ovis2,
    "paligemma": partial(FixedImage, family="paligemma", image_size=224),
    "pixtral": Pixtral,
    "qwen2-audio": Qwen2Audio,
    "qwen2-vl": QwenVL.qwen2,
    "qwen2.5-omni": QwenOmni,
    "qwen2.5-vl": QwenVL.qwen2_5,
    "qwen3-vl": QwenVL.qwen3,
    "siglip": partial(FixedImage, family="siglip", image_size=384),
    "siglip2": Siglip2,
    "smolvlm": Idefics3.smolvlm,
    "text-only": FamilyRule,
    "whisper": Whisper,
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
