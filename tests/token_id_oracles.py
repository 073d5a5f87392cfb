"""Whole processors, from an image in a text to token ids; all need torchvision."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from balancer.tokens import TokenRule, token_rule
from tests.token_oracles import marker_count, word_tokenizer

__all__ = ["TOKEN_ID_ORACLES", "TokenIdOracle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIdOracle:
    """A rule and a real processor with a tokenizer that knows its markers only."""

    rule: TokenRule
    processor: Any
    text: str

    def tokens(self, image: Any) -> int:
        """Markers in the token ids of a text that is nothing but the image."""
        inputs = self.processor(text=[self.text], images=[image], return_tensors="pt")
        return marker_count(inputs["input_ids"])


def _square(side: int) -> dict[str, int]:
    return {"height": side, "width": side}


def qwen2_vl() -> TokenIdOracle:
    from transformers import Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor

    images = Qwen2VLImageProcessor(size={"shortest_edge": 3136, "longest_edge": 12845056})
    processor = Qwen2VLProcessor(images, word_tokenizer("<|image_pad|>"), Qwen2VLVideoProcessor())
    return TokenIdOracle(
        rule=token_rule("qwen2-vl"), processor=processor, text=processor.image_token
    )


def qwen3_vl() -> TokenIdOracle:
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    images = Qwen2VLImageProcessor(
        size={"shortest_edge": 65536, "longest_edge": 16777216}, patch_size=16
    )
    processor = Qwen3VLProcessor(images, word_tokenizer("<|image_pad|>"), Qwen3VLVideoProcessor())
    return TokenIdOracle(
        rule=token_rule("qwen3-vl"), processor=processor, text=processor.image_token
    )


def internvl() -> TokenIdOracle:
    from transformers import GotOcr2ImageProcessor, InternVLProcessor, InternVLVideoProcessor

    tokenizer = word_tokenizer(
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<ctx>",
        video_token="<video>",
    )
    images = GotOcr2ImageProcessor(size=_square(448))
    processor = InternVLProcessor(images, tokenizer, InternVLVideoProcessor())
    return TokenIdOracle(rule=token_rule("internvl"), processor=processor, text="<ctx>")


def _pixtral(family: str, patch_size: int, merge_size: int, largest: int) -> TokenIdOracle:
    from transformers import PixtralImageProcessor, PixtralProcessor

    images = PixtralImageProcessor(size={"longest_edge": largest}, patch_size=patch_size)
    tokenizer = word_tokenizer("[IMG]", "[IMG_BREAK]", "[IMG_END]")
    processor = PixtralProcessor(
        images, tokenizer, patch_size=patch_size, spatial_merge_size=merge_size
    )
    return TokenIdOracle(rule=token_rule(family), processor=processor, text="[IMG]")


def pixtral() -> TokenIdOracle:
    return _pixtral("pixtral", 16, 1, 1024)


def mistral_small() -> TokenIdOracle:
    return _pixtral("mistral-small-3.1", 14, 2, 1540)


def llava_onevision() -> TokenIdOracle:
    from transformers import (
        LlavaOnevisionImageProcessor,
        LlavaOnevisionProcessor,
        LlavaOnevisionVideoProcessor,
    )

    processor = LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessor(),
        word_tokenizer("<image>", "<video>"),
        LlavaOnevisionVideoProcessor(),
        num_image_tokens=729,
        vision_feature_select_strategy="full",
    )
    return TokenIdOracle(rule=token_rule("llava-onevision"), processor=processor, text="<image>")


def gemma4() -> TokenIdOracle:
    from transformers import Gemma4ImageProcessor, Gemma4Processor, Gemma4VideoProcessor
    from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor

    tokenizer = word_tokenizer(
        image_token="<image>",
        boi_token="<boi>",
        eoi_token="<eoi>",
        audio_token="<audio>",
        boa_token="<boa>",
        eoa_token="<eoa>",
        pad_token="<pad>",
    )
    processor = Gemma4Processor(
        Gemma4AudioFeatureExtractor(), Gemma4ImageProcessor(), tokenizer, Gemma4VideoProcessor()
    )
    return TokenIdOracle(rule=token_rule("gemma-4"), processor=processor, text="<image>")


def glm_4_1v() -> TokenIdOracle:
    from transformers import Glm4vImageProcessor, Glm4vProcessor, Glm4vVideoProcessor

    images = Glm4vImageProcessor(size={"shortest_edge": 12544, "longest_edge": 9633792})
    tokenizer = word_tokenizer(
        "<|image|>", "<|video|>", "<|begin_of_video|>", "<|end_of_video|>", "<|begin_of_image|>"
    )
    processor = Glm4vProcessor(images, tokenizer, Glm4vVideoProcessor())
    return TokenIdOracle(rule=token_rule("glm-4.1v"), processor=processor, text="<|image|>")


def ernie_vl() -> TokenIdOracle:
    from transformers.models.ernie4_5_vl_moe.image_processing_ernie4_5_vl_moe import (
        Ernie4_5_VLMoeImageProcessor,
    )
    from transformers.models.ernie4_5_vl_moe.processing_ernie4_5_vl_moe import (
        Ernie4_5_VLMoeProcessor,
    )
    from transformers.models.ernie4_5_vl_moe.video_processing_ernie4_5_vl_moe import (
        Ernie4_5_VLMoeVideoProcessor,
    )

    names = [
        f"{medium}{part}_token" for medium in ("image", "video") for part in ("", "_start", "_end")
    ]
    tokenizer = word_tokenizer(**{name: f"<{name}>" for name in names})
    processor = Ernie4_5_VLMoeProcessor(
        Ernie4_5_VLMoeImageProcessor(),
        tokenizer,
        Ernie4_5_VLMoeVideoProcessor(draw_on_frames=False),
    )
    return TokenIdOracle(
        rule=token_rule("ernie-4.5-vl"), processor=processor, text=processor.image_token
    )


def minicpm_v() -> TokenIdOracle:
    from transformers.models.minicpmv4_6.image_processing_minicpmv4_6 import (
        MiniCPMV4_6ImageProcessor,
    )
    from transformers.models.minicpmv4_6.processing_minicpmv4_6 import MiniCPMV4_6Processor
    from transformers.models.minicpmv4_6.video_processing_minicpmv4_6 import (
        MiniCPMV4_6VideoProcessor,
    )

    names = ["image_token", "video_token"]
    names += [
        f"{part}_{end}_token" for part in ("image", "slice", "image_id") for end in ("start", "end")
    ]
    tokenizer = word_tokenizer("\n", "0", pad_token="<p>", **{name: f"<{name}>" for name in names})
    processor = MiniCPMV4_6Processor(
        MiniCPMV4_6ImageProcessor(), MiniCPMV4_6VideoProcessor(), tokenizer
    )
    return TokenIdOracle(
        rule=token_rule("minicpm-v-4.6"), processor=processor, text=processor.image_token
    )


TOKEN_ID_ORACLES: dict[str, Callable[[], TokenIdOracle]] = {
    "ernie-4.5-vl": ernie_vl,
    "gemma-4": gemma4,
    "glm-4.1v": glm_4_1v,
    "internvl": internvl,
    "llava-onevision": llava_onevision,
    "minicpm-v-4.6": minicpm_v,
    "mistral-small-3.1": mistral_small,
    "pixtral": pixtral,
    "qwen2-vl": qwen2_vl,
    "qwen3-vl": qwen3_vl,
}
"""Family to a function that builds its oracle; building imports transformers."""
