"""Token rules for a million images, beside the loop over images of the published processors."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from balancer.tokens import TokenRule, token_rule
from benchmarks.measure import Record
from benchmarks.pricing_records import pricing_record

__all__ = ["cpu_seconds", "processors", "speed_records"]


def speed_records(name: str, *, seed: int, quick: bool) -> list[Record]:
    """CPU seconds of our rule for all images, of the processor's loop, and their ratio.

    The processor's loop calls its `get_number_of_image_patches` for each of 20,000 images; its
    time is extrapolated. Medians of 9 passes on one thread, which take turns.
    """
    num_images, num_asked, passes = (200_000, 300, 3) if quick else (1_000_000, 20_000, 9)
    heights, widths = np.random.default_rng(seed).integers(200, 4000, (2, num_images))
    asked = list(zip(heights[:num_asked].tolist(), widths[:num_asked].tolist(), strict=True))
    records = []
    for family, processor in processors().items():
        rule, ask = token_rule(family), processor.get_number_of_image_patches

        def ours(rule: TokenRule = rule) -> None:
            rule.images(heights, widths)

        def theirs(ask: Callable[[int, int], Any] = ask) -> None:
            _ = [ask(height, width) for height, width in asked]

        our_seconds, their_seconds = cpu_seconds((ours, theirs), passes)
        their_seconds *= num_images / num_asked
        for metric, value, unit in (
            ("rule_seconds", our_seconds, "s"),
            ("processor_seconds", their_seconds, "s"),
            ("seconds_vs_transformers", their_seconds / our_seconds, "ratio"),
        ):
            source = type(processor).__name__
            records.append(
                pricing_record(name, family, source, metric, value, unit=unit, n=num_images)
            )
    return records


def processors() -> dict[str, Any]:
    """Image processors that count patches from a size alone, by the family of their rule."""
    from transformers.models.ernie4_5_vl_moe import image_processing_pil_ernie4_5_vl_moe as ernie
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
    from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    glm = {"shortest_edge": 12544, "longest_edge": 9633792}
    return {
        "qwen2.5-vl": Qwen2VLImageProcessorPil(
            size={"shortest_edge": 3136, "longest_edge": 12845056}
        ),
        "qwen3-vl": Qwen2VLImageProcessorPil(
            size={"shortest_edge": 65536, "longest_edge": 16777216}, patch_size=16
        ),
        "internvl": GotOcr2ImageProcessorPil(
            size={"height": 448, "width": 448}, crop_to_patches=True, min_patches=1, max_patches=12
        ),
        "ernie-4.5-vl": ernie.Ernie4_5_VLMoeImageProcessorPil(),
        "glm-4.1v": Glm4vImageProcessorPil(size=glm),
        "glm-4.6v": Glm46VImageProcessorPil(size=glm),
        "idefics3": Idefics3ImageProcessorPil(
            size={"longest_edge": 1456}, max_image_size={"longest_edge": 364}
        ),
        "smolvlm": Idefics3ImageProcessorPil(
            size={"longest_edge": 2048}, max_image_size={"longest_edge": 512}
        ),
    }


def cpu_seconds(calls: Sequence[Callable[[], None]], passes: int) -> list[float]:
    """Median CPU seconds of this thread in each call, over passes through all, the first apart."""
    seconds = np.empty((passes + 1, len(calls)))
    for row in seconds:
        for index, call in enumerate(calls):
            started = time.thread_time()
            call()
            row[index] = time.thread_time() - started
    return [float(median) for median in np.median(seconds[1:], axis=0)]
