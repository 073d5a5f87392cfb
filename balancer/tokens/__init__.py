"""From media sizes to encoder patches and language-model tokens, one file a model family."""

from balancer.tokens.counts import MediaCounts, TokenRule, illegal_media, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.fixed import FixedImage
from balancer.tokens.internvl import InternVL
from balancer.tokens.llava_next import LlavaNext
from balancer.tokens.pixtral import Pixtral
from balancer.tokens.qwen_vl import QwenVL
from balancer.tokens.registry import TOKEN_RULES, token_rule

__all__ = [
    "FamilyRule",
    "FixedImage",
    "InternVL",
    "LlavaNext",
    "MediaCounts",
    "Pixtral",
    "QwenVL",
    "TOKEN_RULES",
    "TokenRule",
    "illegal_media",
    "media_counts",
    "token_rule",
]
