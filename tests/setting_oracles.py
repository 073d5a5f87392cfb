"""Published code at settings other than the defaults, so that no rule is right by its defaults."""

from collections.abc import Callable
from typing import Any

from balancer.tokens import token_rule
from tests.token_oracles import Columns, ImageOracle, refusing

__all__ = ["SETTING_ORACLES"]


def _oracle(
    family: str, settings: dict[str, Any], count: Callable[[int, int], Columns]
) -> ImageOracle:
    rule = token_rule(family, **settings)
    return ImageOracle(family=family, source="transformers", rule=rule, count=refusing(count))


def internvl() -> ImageOracle:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    processor = GotOcr2ImageProcessorPil(
        size={"height": 336, "width": 336}, crop_to_patches=True, min_patches=2, max_patches=40
    )

    def count(height: int, width: int) -> Columns:
        return {"segments": processor.get_number_of_image_patches(height, width)}

    return _oracle("internvl", {"tile_size": 336, "min_tiles": 2, "max_tiles": 40}, count)


def llava_next() -> ImageOracle:
    from transformers.image_processing_utils import select_best_resolution

    pinpoints = tuple(
        (336 * rows, 336 * columns) for rows in range(1, 4) for columns in range(1, 5)
    )

    def count(height: int, width: int) -> Columns:
        rows, columns = select_best_resolution((height, width), pinpoints)
        return {"segments": 1 + rows * columns // 336**2}

    return _oracle("llava-next", {"grid_pinpoints": pinpoints}, count)


def qwen3_vl() -> ImageOracle:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    def count(height: int, width: int) -> Columns:
        sides = smart_resize(height, width, 32, 1000, 100_000)
        return {"grid_heights": sides[0] // 16, "grid_widths": sides[1] // 16}

    return _oracle("qwen3-vl", {"min_pixels": 1000, "max_pixels": 100_000}, count)


def gemma4() -> ImageOracle:
    from transformers.models.gemma4.image_processing_pil_gemma4 import (
        get_aspect_ratio_preserving_size,
    )

    def count(height: int, width: int) -> Columns:
        sides = get_aspect_ratio_preserving_size(height, width, 16, 70 * 9, 3)
        return {"grid_heights": sides[0] // 16, "grid_widths": sides[1] // 16}

    return _oracle("gemma-4", {"max_tokens": 70}, count)


def siglip2() -> ImageOracle:
    from transformers.models.siglip2.image_processing_pil_siglip2 import (
        get_image_size_for_max_num_patches,
    )

    def count(height: int, width: int) -> Columns:
        sides = get_image_size_for_max_num_patches(height, width, 14, 1024)
        return {"grid_heights": sides[0] // 14, "grid_widths": sides[1] // 14}

    return _oracle("siglip2", {"patch_size": 14, "max_patches": 1024}, count)


def mllama() -> ImageOracle:
    from transformers.models.mllama.image_processing_pil_mllama import get_optimal_tiled_canvas

    def count(height: int, width: int) -> Columns:
        rows, columns = get_optimal_tiled_canvas(height, width, 9, 448)
        return {"grid_heights": int(rows) // 14, "grid_widths": int(columns) // 14}

    return _oracle("llama-3.2-vision", {"tile_size": 448, "max_tiles": 9}, count)


def minicpm_v() -> ImageOracle:
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import (
        MiniCPMV4_6ImageProcessorPil,
    )

    images = MiniCPMV4_6ImageProcessorPil()

    def count(height: int, width: int) -> Columns:
        grid = images.get_sliced_grid((height, width), 16, 336)
        if grid is None:
            sides = images.find_best_resize((height, width), 336, 14, "4x", allow_upscale=True)
            return {"segments": 1, "grid_heights": sides[0] // 14, "grid_widths": sides[1] // 14}
        sides = images.get_refine_size((height, width), grid, 336, 14, "4x", allow_upscale=True)
        return {
            "segments": 1 + grid[0] * grid[1],
            "grid_heights": sides[0] // grid[0] // 14,
            "grid_widths": sides[1] // grid[1] // 14,
        }

    settings = {"scale_resolution": 336, "max_slices": 16, "merge_size": 2}
    return _oracle("minicpm-v-4.6", settings, count)


def ovis2() -> ImageOracle:
    from transformers.models.ovis2.image_processing_pil_ovis2 import get_min_tile_covering_grid

    def count(height: int, width: int) -> Columns:
        rows, columns = get_min_tile_covering_grid((height, width), 336, 12, 0.7)
        tiles = rows * columns
        return {"segments": tiles + (tiles > 1)}

    settings = {"tile_size": 336, "max_tiles": 12, "covering_threshold": 0.7}
    return _oracle("ovis2", settings, count)


SETTING_ORACLES: dict[str, Callable[[], ImageOracle]] = {
    "gemma-4": gemma4,
    "internvl": internvl,
    "llama-3.2-vision": mllama,
    "llava-next": llava_next,
    "minicpm-v-4.6": minicpm_v,
    "ovis2": ovis2,
    "qwen3-vl": qwen3_vl,
    "siglip2": siglip2,
}
"""Family to a function that builds its oracle; building imports transformers."""
