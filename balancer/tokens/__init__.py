"""From media sizes to encoder patches and language-model tokens, one file a model family."""

from balancer.tokens.counts import MediaCounts, TokenRule, illegal_media, media_counts
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
from balancer.tokens.processor import ProcessorTokens
from balancer.tokens.qwen_omni import QwenOmni
from balancer.tokens.qwen_vl import QwenVL
from balancer.tokens.registry import TOKEN_RULES, token_rule
from balancer.tokens.siglip2 import Siglip2
from balancer.tokens.whisper import Qwen2Audio, Whisper

__all__ = [
    "TOKEN_RULES",
    "ErnieVL",
    "FamilyRule",
    "FixedImage",
    "Gemma3",
    "Gemma4",
    "GlmVL",
    "Idefics3",
    "InternVL",
    "LlavaNext",
    "LlavaOnevision",
    "MediaCounts",
    "MiniCPMV",
    "Mllama",
    "Ovis2",
    "Pixtral",
    "ProcessorTokens",
    "Qwen2Audio",
    "QwenOmni",
    "QwenVL",
    "Siglip2",
    "TokenRule",
    "Whisper",
    "illegal_media",
    "media_counts",
    "token_rule",
]
