"""Published image processors of further families that keep the aspect ratio, or one fixed size."""

from collections.abc import Callable
from typing import Any

import numpy as np

from balancer.tokens import token_rule
from tests.token_oracles import Columns, ImageOracle, marker_count, refusing, word_tokenizer

__all__ = ["NATIVE_ORACLES"]


def gemma4() -> ImageOracle:
    from transformers.models.gemma4.image_processing_pil_gemma4 import (
        Gemma4ImageProcessorPil,
        get_aspect_ratio_preserving_size,
    )

    processor = Gemma4ImageProcessorPil()

    def count(height: int, width: int) -> Columns:
        new_height, new_width = get_aspect_ratio_preserving_size(height, width, 16, 280 * 9, 3)
        rows, columns = new_height // 16, new_width // 16
        return {
            "grid_heights": rows,
            "grid_widths": columns,
            "tokens": rows * columns // 9 + 2,
        }

    def run(image: Any) -> Columns:
        tensors = processor(images=[image])
        positions = np.asarray(tensors["image_position_ids"][0])
        return {
            "patches": int((positions[:, 0] >= 0).sum()),
            "tokens": int(tensors["num_soft_tokens_per_image"][0]) + 2,
        }

    rule = token_rule("gemma-4")
    source = "transformers:Gemma4ImageProcessor"
    return ImageOracle(family="gemma-4", source=source, rule=rule, count=refusing(count), run=run)


def siglip2() -> ImageOracle:
    from transformers.models.siglip2.image_processing_pil_siglip2 import (
        Siglip2ImageProcessorPil,
        get_image_size_for_max_num_patches,
    )

    processor = Siglip2ImageProcessorPil()

    def count(height: int, width: int) -> Columns:
        new_height, new_width = get_image_size_for_max_num_patches(height, width, 16, 256)
        return {"grid_heights": new_height // 16, "grid_widths": new_width // 16}

    def run(image: Any) -> Columns:
        tensors = processor(images=[image])
        rows, columns = tensors["spatial_shapes"][0]
        return {
            "grid_heights": rows,
            "grid_widths": columns,
            "tokens": int(tensors["pixel_attention_mask"][0].sum()),
        }

    source = "transformers:Siglip2ImageProcessor"
    rule = token_rule("siglip2")
    return ImageOracle(family="siglip2", source=source, rule=rule, count=count, run=run)


def _merged(family: str, source: str, processor: Any, rule: Any) -> ImageOracle:
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

    return ImageOracle(family=family, source=source, rule=rule, count=refusing(count), run=run)


def glm_4_1v() -> ImageOracle:
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

    processor = Glm4vImageProcessorPil(size={"shortest_edge": 12544, "longest_edge": 9633792})
    source = "transformers:Glm4vImageProcessor"
    return _merged("glm-4.1v", source, processor, token_rule("glm-4.1v"))


def glm_4_6v() -> ImageOracle:
    from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil

    processor = Glm46VImageProcessorPil(size={"shortest_edge": 12544, "longest_edge": 9633792})
    source = "transformers:Glm46VImageProcessor"
    return _merged("glm-4.6v", source, processor, token_rule("glm-4.6v"))


def ernie_vl() -> ImageOracle:
    from transformers.models.ernie4_5_vl_moe.image_processing_pil_ernie4_5_vl_moe import (
        Ernie4_5_VLMoeImageProcessorPil,
    )

    source = "transformers:Ernie4_5_VLMoeImageProcessor"
    processor = Ernie4_5_VLMoeImageProcessorPil()
    return _merged("ernie-4.5-vl", source, processor, token_rule("ernie-4.5-vl"))


def paligemma() -> ImageOracle:
    from transformers.models.paligemma.processing_paligemma import PaliGemmaProcessor
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    images = SiglipImageProcessorPil(size={"height": 224, "width": 224})
    images.image_seq_length = 256
    processor = PaliGemmaProcessor(images, word_tokenizer(image_token="<image>"))
    processor.tokenizer.bos_token = "[UNK]"

    def count(height: int, width: int) -> Columns:
        reported = processor._get_num_multimodal_tokens(image_sizes=[(height, width)])
        return {"segments": 1, "tokens": reported["num_image_tokens"][0]}

    def run(image: Any) -> Columns:
        inputs = processor(text=["<image>"], images=[image])
        return {
            "grid_heights": np.shape(inputs["pixel_values"])[-2] // 14,
            "tokens": marker_count(inputs["input_ids"]),
        }

    source = "transformers:PaliGemmaProcessor"
    rule = token_rule("paligemma")
    return ImageOracle(family="paligemma", source=source, rule=rule, count=count, run=run)


NATIVE_ORACLES: dict[str, Callable[[], ImageOracle]] = {
    "ernie-4.5-vl": ernie_vl,
    "gemma-4": gemma4,
    "glm-4.1v": glm_4_1v,
    "glm-4.6v": glm_4_6v,
    "paligemma": paligemma,
    "siglip2": siglip2,
}
"""Case name to a function that builds its oracle; building imports transformers."""
