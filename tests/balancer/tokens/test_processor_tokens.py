"""A wrapped processor counts what it reports, asks once a size, and says what it refuses."""

from typing import Any

import numpy as np
import pytest

from balancer.errors import ArgumentError
from balancer.tokens import ProcessorTokens, token_rule
from tests.token_oracles import image_sizes, word_tokenizer

SIZES = np.array(image_sizes(500, seed=2)).T


class Asked:
    """A processor that remembers how often it was asked for each size."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.sizes: list[tuple[int, ...]] = []

    def _get_num_multimodal_tokens(self, image_sizes: Any = None, video_sizes: Any = None) -> Any:
        report = self.processor._get_num_multimodal_tokens(image_sizes=image_sizes)
        self.sizes += [tuple(size) for size in image_sizes]
        return report


def qwen2_vl() -> Any:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.models.qwen2_vl.processing_qwen2_vl import Qwen2VLProcessor

    # Its constructor asks for a video processor, which needs torchvision; counting images does not.
    processor = object.__new__(Qwen2VLProcessor)
    size = {"shortest_edge": 3136, "longest_edge": 12845056}
    processor.image_processor = Qwen2VLImageProcessorPil(size=size)
    return processor


def idefics3() -> Any:
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

    tokenizer = word_tokenizer("<fake_token_around_image>", "<image>", "<global-img>", "\n\n")
    return Idefics3Processor(Idefics3ImageProcessorPil(), tokenizer)


def test_a_native_resolution_processor_gives_the_counts_of_its_family() -> None:
    ours = token_rule("qwen2-vl").images(*SIZES)
    wrapped = ProcessorTokens(qwen2_vl()).images(*SIZES)
    assert (wrapped.legal == ours.legal).all()
    assert (wrapped.tokens == ours.tokens).all()
    assert (wrapped.patches == ours.patches).all()


def test_a_tiling_processor_gives_the_counts_of_its_family() -> None:
    ours = token_rule("idefics3").images(*SIZES)
    wrapped = ProcessorTokens(idefics3(), patches_per_tile=26 * 26).images(*SIZES)
    assert (wrapped.tokens == ours.tokens).all()
    assert (wrapped.segments == ours.segments).all()
    assert (wrapped.patches == ours.patches).all()


def test_every_distinct_size_is_asked_for_once() -> None:
    asked = Asked(qwen2_vl())
    rule = ProcessorTokens(asked)
    rule.images(np.array([480, 480, 640]), np.array([640, 640, 480]))
    rule.images(np.array([640, 99]), np.array([480, 99]))
    assert sorted(asked.sizes) == [(99, 99), (480, 640), (640, 480)]


def test_a_refused_size_is_illegal_and_leaves_its_neighbours_alone() -> None:
    heights, widths = np.array([480, 1, 480]), np.array([640, 500, 480])
    counts = ProcessorTokens(qwen2_vl()).images(heights, widths)
    assert counts.legal.tolist() == [True, False, True]
    assert counts.tokens.tolist() == [391, 0, 289]


def test_media_that_the_processor_does_not_report_are_illegal() -> None:
    rule = ProcessorTokens(idefics3())
    one = np.ones(1, np.int64)
    assert not rule.videos(one, one * 1.0, one, one).legal.any()
    assert not rule.audio(one * 1.0).legal.any()
    assert not ProcessorTokens(Asked(qwen2_vl())).audio(one * 1.0).legal.any()


def test_audio_is_asked_for_in_samples() -> None:
    from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
    from transformers.models.gemma4.processing_gemma4 import Gemma4Processor

    processor = object.__new__(Gemma4Processor)
    processor.image_processor = Gemma4ImageProcessorPil()
    processor.feature_extractor = Gemma4AudioFeatureExtractor()
    processor.audio_seq_length = 750
    rule = ProcessorTokens(processor)
    assert rule.audio(np.array([1.0, 10.0])).tokens.tolist() == [25, 250]


def test_names_follow_the_settings_of_the_processor() -> None:
    processor = qwen2_vl()
    name = ProcessorTokens(processor).name
    assert name == ProcessorTokens(qwen2_vl()).name
    assert name.startswith("processor:Qwen2VLProcessor(")
    processor.image_processor.size = {"shortest_edge": 3136, "longest_edge": 10**6}
    assert ProcessorTokens(processor).name != name


def test_no_images_ask_nothing() -> None:
    no_sizes = np.zeros(0, np.int64)
    assert ProcessorTokens(qwen2_vl()).images(no_sizes, no_sizes).tokens.size == 0


def test_an_object_without_a_report_is_refused() -> None:
    with pytest.raises(ArgumentError, match="processor is a dict, which has no"):
        ProcessorTokens({})  # type: ignore[arg-type]
