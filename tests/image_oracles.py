"""Published image processors of the families whose images a token rule counts."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from balancer.tokens import token_rule
from tests.token_oracles import Columns, ImageOracle, refusing, word_tokenizer

__all__ = ["IMAGE_ORACLES"]


def _qwen_vl(family: str, source: str, size: dict[str, int], patch_size: int) -> ImageOracle:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil(size=size, patch_size=patch_size)

    def count(height: int, width: int) -> Columns:
        patches = processor.get_number_of_image_patches(height, width)
        return {"segments": 1, "patches": patches, "tokens": patches // 4}

    def run(image: Any) -> Columns:
        tensors = processor(images=[image])
        _, rows, columns = tensors["image_grid_thw"][0]
        return {
            "patches": len(tensors["pixel_values"]),
            "grid_heights": int(rows),
            "grid_widths": int(columns),
        }

    rule = token_rule(family, min_pixels=size["shortest_edge"], max_pixels=size["longest_edge"])
    return ImageOracle(family=family, source=source, rule=rule, count=refusing(count), run=run)


def qwen2_vl() -> ImageOracle:
    size = {"shortest_edge": 3136, "longest_edge": 12845056}
    return _qwen_vl("qwen2-vl", "transformers:Qwen2VLImageProcessor", size, 14)


def qwen2_5_vl_small_budget() -> ImageOracle:
    size = {"shortest_edge": 256 * 784, "longest_edge": 1280 * 784}
    return _qwen_vl("qwen2.5-vl", "transformers:Qwen2VLImageProcessor", size, 14)


def qwen3_vl() -> ImageOracle:
    size = {"shortest_edge": 65536, "longest_edge": 16777216}
    return _qwen_vl("qwen3-vl", "transformers:Qwen2VLImageProcessor", size, 16)


def internvl() -> ImageOracle:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    processor = GotOcr2ImageProcessorPil(
        size={"height": 448, "width": 448}, crop_to_patches=True, min_patches=1, max_patches=12
    )

    def count(height: int, width: int) -> Columns:
        tiles = processor.get_number_of_image_patches(height, width)
        return {"segments": tiles, "patches": tiles * 32 * 32, "tokens": 2 + 256 * tiles}

    def run(image: Any) -> Columns:
        pixels = processor(images=[image])["pixel_values"]
        return {"segments": len(pixels), "grid_heights": pixels[0].shape[-2] // 14}

    source = "transformers:GotOcr2ImageProcessor"
    rule = token_rule("internvl")
    return ImageOracle(family="internvl", source=source, rule=rule, count=count, run=run)


def _pixtral(family: str, patch_size: int, merge_size: int, largest: int) -> ImageOracle:
    from transformers.image_utils import ChannelDimension
    from transformers.models.pixtral.image_processing_pil_pixtral import (
        PixtralImageProcessorPil,
        get_resize_output_image_size,
    )

    unit = patch_size * merge_size
    processor = PixtralImageProcessorPil(size={"longest_edge": largest}, patch_size=unit)

    def count(height: int, width: int) -> Columns:
        image = np.zeros((height, width, 3))
        new_height, new_width = get_resize_output_image_size(
            image, largest, unit, ChannelDimension.LAST
        )
        rows, columns = new_height // unit, new_width // unit
        if not rows or not columns:
            raise ValueError("shrunk to nothing")
        patches = rows * columns * merge_size**2
        return {"segments": 1, "patches": patches, "tokens": rows * (columns + 1)}

    def run(image: Any) -> Columns:
        height, width = processor(images=[image])["pixel_values"][0].shape[-2:]
        return {"grid_heights": height // patch_size, "grid_widths": width // patch_size}

    source = "transformers:PixtralImageProcessor"
    rule = token_rule(family)
    return ImageOracle(family=family, source=source, rule=rule, count=refusing(count), run=run)


def pixtral() -> ImageOracle:
    return _pixtral("pixtral", 16, 1, 1024)


def mistral_small() -> ImageOracle:
    return _pixtral("mistral-small-3.1", 14, 2, 1540)


def _mistral_common(family: str, patch_size: int, merge_size: int, largest: int) -> ImageOracle:
    from mistral_common.tokens.tokenizers.image import ImageConfig, ImageEncoder, SpecialImageIDs

    config = ImageConfig(patch_size, largest, merge_size)
    encoder = ImageEncoder(config, SpecialImageIDs(img=10, img_break=12, img_end=13))

    def count(height: int, width: int) -> Columns:
        columns, rows = encoder._image_to_num_tokens(SimpleNamespace(size=(width, height)))
        patches = rows * columns * merge_size**2
        return {"segments": 1, "patches": patches, "tokens": rows * (columns + 1)}

    rule = token_rule(family, pipeline="mistral_common")
    source = "mistral_common:ImageEncoder"
    return ImageOracle(family=family, source=source, rule=rule, count=count)


def pixtral_of_mistral() -> ImageOracle:
    return _mistral_common("pixtral", 16, 1, 1024)


def mistral_small_of_mistral() -> ImageOracle:
    return _mistral_common("mistral-small-3.1", 14, 2, 1540)


def llava_next() -> ImageOracle:
    from transformers.image_processing_utils import select_best_resolution
    from transformers.models.llava_next.image_processing_pil_llava_next import (
        LlavaNextImageProcessorPil,
    )
    from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor

    tile = {"height": 336, "width": 336}
    processor = LlavaNextProcessor(
        LlavaNextImageProcessorPil(size={"shortest_edge": 336}, crop_size=tile),
        word_tokenizer("<image>"),
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    pinpoints = processor.image_processor.image_grid_pinpoints

    def count(height: int, width: int) -> Columns:
        reported = processor._get_num_multimodal_tokens(image_sizes=[(height, width)])
        rows, columns = select_best_resolution((height, width), pinpoints)
        tiles = rows * columns // 336**2 + 1
        return {
            "segments": tiles,
            "patches": tiles * 24 * 24,
            "tokens": reported["num_image_tokens"][0],
        }

    def run(image: Any) -> Columns:
        inputs = processor(text=["<image>"], images=[image])
        tiles, _, height, width = np.shape(inputs["pixel_values"][0])
        return {
            "segments": tiles,
            "grid_heights": height // 14,
            "grid_widths": width // 14,
            "tokens": len(inputs["input_ids"][0]),
        }

    source = "transformers:LlavaNextProcessor"
    rule = token_rule("llava-next")
    return ImageOracle(family="llava-next", source=source, rule=rule, count=count, run=run)


def _fixed(family: str, image_size: int) -> ImageOracle:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.llava.processing_llava import LlavaProcessor

    processor = LlavaProcessor(
        CLIPImageProcessorPil(
            size={"shortest_edge": image_size},
            crop_size={"height": image_size, "width": image_size},
        ),
        word_tokenizer("<image>"),
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )

    def count(height: int, width: int) -> Columns:
        reported = processor._get_num_multimodal_tokens(image_sizes=[(height, width)])
        return {"segments": 1, "tokens": reported["num_image_tokens"][0]}

    def run(image: Any) -> Columns:
        inputs = processor(text=["<image>"], images=[image])
        height, width = np.shape(inputs["pixel_values"][0])[-2:]
        return {
            "grid_heights": height // 14,
            "grid_widths": width // 14,
            "tokens": len(inputs["input_ids"][0]),
        }

    source = "transformers:LlavaProcessor"
    return ImageOracle(family=family, source=source, rule=token_rule(family), count=count, run=run)


def llava_1_5() -> ImageOracle:
    return _fixed("llava-1.5", 336)


def clip() -> ImageOracle:
    return _fixed("clip", 224)


def siglip() -> ImageOracle:
    return _fixed("siglip", 384)


IMAGE_ORACLES: dict[str, Callable[[], ImageOracle]] = {
    "clip": clip,
    "internvl": internvl,
    "llava-1.5": llava_1_5,
    "llava-next": llava_next,
    "mistral-small-3.1": mistral_small,
    "mistral-small-3.1 of mistral_common": mistral_small_of_mistral,
    "pixtral": pixtral,
    "pixtral of mistral_common": pixtral_of_mistral,
    "qwen2-vl": qwen2_vl,
    "qwen2.5-vl with a small budget": qwen2_5_vl_small_budget,
    "qwen3-vl": qwen3_vl,
    "siglip": siglip,
}
"""Case name to a function that builds its oracle; building imports transformers."""
