"""Published image processors of the families that cut images into tiles or views."""

from collections.abc import Callable
from typing import Any

import numpy as np

from balancer.tokens import token_rule
from tests.token_oracles import Columns, ImageOracle, marker_count, word_tokenizer

__all__ = ["TILE_ORACLES"]


def _square(side: int) -> dict[str, int]:
    return {"height": side, "width": side}


def llava_onevision() -> ImageOracle:
    from transformers.image_processing_utils import select_best_resolution
    from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
        LlavaOnevisionImageProcessorPil,
    )
    from transformers.models.llava_onevision.processing_llava_onevision import (
        LlavaOnevisionProcessor,
    )

    images = LlavaOnevisionImageProcessorPil()
    processor = object.__new__(LlavaOnevisionProcessor)
    processor.image_processor = images
    processor.num_image_tokens = 729
    processor.vision_feature_select_strategy = "full"
    processor.vision_aspect_ratio = "anyres_max_9"

    def count(height: int, width: int) -> Columns:
        rows, columns = select_best_resolution((height, width), images.image_grid_pinpoints)
        tokens = processor._get_number_of_features(height, width, 384, 384)
        return {"segments": rows * columns // 384**2 + 1, "tokens": tokens}

    def run(image: Any) -> Columns:
        views, _, height, width = np.shape(images(images=[image])["pixel_values"][0])
        return {"segments": views, "grid_heights": height // 14, "grid_widths": width // 14}

    rule = token_rule("llava-onevision")
    source = "transformers:LlavaOnevisionProcessor"
    return ImageOracle(family="llava-onevision", source=source, rule=rule, count=count, run=run)


def _gemma3(pan_and_scan: bool) -> ImageOracle:
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
    from transformers.models.gemma3.processing_gemma3 import Gemma3Processor

    tokenizer = word_tokenizer(
        "\n\n", boi_token="<boi>", eoi_token="<eoi>", image_token="<soft>", pad_token="<pad>"
    )
    images = Gemma3ImageProcessorPil(size=_square(896), do_pan_and_scan=pan_and_scan)
    processor = Gemma3Processor(images, tokenizer)

    def count(height: int, width: int) -> Columns:
        crops = 0
        if pan_and_scan:
            pixels = np.broadcast_to(np.uint8(0), (3, height, width))
            crops = len(images.pan_and_scan(pixels, 256, 4, 1.2))
        sequence = marker_count(tokenizer(processor.full_image_sequence)["input_ids"])
        return {"segments": 1 + crops, "tokens": (1 + crops) * sequence}

    def run(image: Any) -> Columns:
        inputs = processor(text=["<boi>"], images=[[image]], do_pan_and_scan=pan_and_scan)
        return {
            "segments": len(inputs["pixel_values"]),
            "grid_heights": np.shape(inputs["pixel_values"][0])[-2] // 14,
            "tokens": marker_count(inputs["input_ids"]),
        }

    rule = token_rule("gemma-3", pan_and_scan=pan_and_scan)
    source = "transformers:Gemma3Processor"
    return ImageOracle(family="gemma-3", source=source, rule=rule, count=count, run=run)


def gemma3() -> ImageOracle:
    return _gemma3(pan_and_scan=False)


def gemma3_pan_and_scan() -> ImageOracle:
    return _gemma3(pan_and_scan=True)


def _idefics3(family: str, longest: int, tile: int, patch: int, length: int) -> ImageOracle:
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

    cells = [f"<row_{row}_col_{column}>" for row in range(1, 13) for column in range(1, 13)]
    tokenizer = word_tokenizer(
        "<fake_token_around_image>", "<image>", "<global-img>", "\n", "\n\n", *cells
    )
    images = Idefics3ImageProcessorPil(
        size={"longest_edge": longest}, max_image_size={"longest_edge": tile}
    )
    processor = Idefics3Processor(images, tokenizer, image_seq_len=length)

    def count(height: int, width: int) -> Columns:
        reported = processor._get_num_multimodal_tokens(image_sizes=[(height, width)])
        return {
            "segments": max(reported["num_image_patches"][0], 1),
            "tokens": reported["num_image_tokens"][0],
        }

    def run(image: Any) -> Columns:
        inputs = processor(text=["<image>"], images=[[image]])
        return {
            "segments": len(inputs["pixel_values"][0]),
            "grid_heights": np.shape(inputs["pixel_values"][0][0])[-2] // patch,
            "tokens": marker_count(inputs["input_ids"]),
        }

    rule = token_rule(
        family, longest_side=longest, tile_size=tile, patch_size=patch, tokens_per_tile=length
    )
    source = "transformers:Idefics3Processor"
    return ImageOracle(family=family, source=source, rule=rule, count=count, run=run)


def idefics3() -> ImageOracle:
    return _idefics3("idefics3", 1456, 364, 14, 169)


def smolvlm() -> ImageOracle:
    return _idefics3("smolvlm", 2048, 512, 16, 64)


def smolvlm_2b() -> ImageOracle:
    return _idefics3("smolvlm", 1536, 384, 14, 81)


def mllama() -> ImageOracle:
    from transformers.models.mllama.image_processing_pil_mllama import (
        MllamaImageProcessorPil,
        get_optimal_tiled_canvas,
    )

    processor = MllamaImageProcessorPil(size=_square(560), max_image_tiles=4)

    def count(height: int, width: int) -> Columns:
        rows, columns = get_optimal_tiled_canvas(height, width, 4, 560)
        return {"grid_heights": int(rows) // 14, "grid_widths": int(columns) // 14, "tokens": 1}

    def run(image: Any) -> Columns:
        tiles = processor(images=[[image]])["num_tiles"][0][0]
        return {"patches": tiles * 40 * 40}

    rule = token_rule("llama-3.2-vision")
    source = "transformers:MllamaImageProcessor"
    return ImageOracle(family="llama-3.2-vision", source=source, rule=rule, count=count, run=run)


def minicpm_v() -> ImageOracle:
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import (
        MiniCPMV4_6ImageProcessorPil,
    )

    images = MiniCPMV4_6ImageProcessorPil()

    def columns_of(overview: Any, slices: Any, rows: int, columns: int) -> Columns:
        tokens = 3 + int(np.prod(overview)) // 16 + 2
        tokens += sum(int(np.prod(grid)) // 16 + 2 for grid in slices) + max(rows - 1, 0)
        grid = slices[0] if len(slices) else overview
        return {
            "segments": 1 + rows * columns,
            "grid_heights": int(grid[0]),
            "grid_widths": int(grid[1]),
            "tokens": tokens,
        }

    def count(height: int, width: int) -> Columns:
        size = (height, width)
        grid = images.get_sliced_grid(size, 9, 448)
        overview = images.find_best_resize(size, 448, 14, "16x", allow_upscale=grid is None)
        view = np.array(overview) // 14
        if grid is None:
            return columns_of(view, [], 0, 0)
        refined = images.get_refine_size(size, grid, 448, 14, "16x", allow_upscale=True)
        one_slice = np.array(refined) // np.array(grid) // 14
        return columns_of(view, [one_slice] * (grid[0] * grid[1]), *grid)

    def run(image: Any) -> Columns:
        tensors = images(images=[image])
        rows, columns = tensors["grids"][0]
        sizes = tensors["target_sizes"]
        return columns_of(sizes[0], sizes[1:], rows, columns)

    rule = token_rule("minicpm-v-4.6")
    source = "transformers:MiniCPMV4_6ImageProcessor"
    return ImageOracle(family="minicpm-v-4.6", source=source, rule=rule, count=count, run=run)


def ovis2() -> ImageOracle:
    from transformers.models.ovis2.image_processing_pil_ovis2 import (
        Ovis2ImageProcessorPil,
        get_min_tile_covering_grid,
    )
    from transformers.models.ovis2.processing_ovis2 import Ovis2Processor

    markers = ["START", "ATOM", "GRID", "COL", "ROW", "END"]
    tokenizer = word_tokenizer("<image>", *(f"<IMG_{marker}>" for marker in markers))
    images = Ovis2ImageProcessorPil(size=_square(448), crop_to_patches=True, max_patches=9)
    processor = Ovis2Processor(images, tokenizer, image_seq_length=256)

    def count(height: int, width: int) -> Columns:
        columns, rows = get_min_tile_covering_grid((height, width), 448, 9)
        text = processor.replace_image_token({"grids": np.array([[rows, columns]])}, 0)
        tiles = rows * columns
        return {"segments": tiles + (tiles > 1), "tokens": text.count("<IMG_")}

    def run(image: Any) -> Columns:
        inputs = processor(text=["<image>"], images=[image], return_tensors="np")
        return {
            "segments": len(inputs["pixel_values"]),
            "grid_heights": inputs["pixel_values"].shape[-2] // 14,
            "tokens": marker_count(inputs["input_ids"]),
        }

    rule = token_rule("ovis2")
    source = "transformers:Ovis2Processor"
    return ImageOracle(family="ovis2", source=source, rule=rule, count=count, run=run)


TILE_ORACLES: dict[str, Callable[[], ImageOracle]] = {
    "gemma-3": gemma3,
    "gemma-3 with pan and scan": gemma3_pan_and_scan,
    "idefics3": idefics3,
    "llama-3.2-vision": mllama,
    "llava-onevision": llava_onevision,
    "minicpm-v-4.6": minicpm_v,
    "ovis2": ovis2,
    "smolvlm": smolvlm,
    "smolvlm with 2.2B": smolvlm_2b,
}
"""Case name to a function that builds its oracle; building imports transformers."""
