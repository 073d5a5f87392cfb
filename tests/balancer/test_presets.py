"""Presets: the published numbers, and what they say of a sample."""

from dataclasses import asdict

import numpy as np
import pytest
import transformers

from balancer.errors import ArgumentError
from balancer.flops.config import language_dims, vision_dims
from balancer.flops.forward import language_flops
from balancer.flops.presets import PRESETS, preset
from balancer.samples import SampleTable
from balancer.tokens import token_rule


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_prices_text(name: str) -> None:
    costs = preset(name)(SampleTable.from_lengths([100, 200]))
    assert costs.modules[-1] == "language"
    assert (costs.values[:, -1] > 0).all()


def test_the_text_preset_is_the_default_of_its_class() -> None:
    dims = preset("text-7b").language
    published = language_dims(transformers.LlamaConfig().to_dict())
    assert (dims.query_width, dims.kv_width) == (published.query_width, published.kv_width)
    for name in ("depth", "width", "mlp_width", "vocab_size"):
        assert getattr(dims, name) == getattr(published, name)


def test_the_qwen_tower_has_the_defaults_of_its_class_but_for_the_width() -> None:
    config = transformers.Qwen2_5_VLConfig(vision_config={"hidden_size": 1280}).to_dict()
    vision = preset("qwen2.5-vl-7b").vision
    assert vision is not None
    assert asdict(vision) == asdict(vision_dims(config))


@pytest.mark.parametrize(
    ("name", "billions"),
    [("qwen2.5-vl-3b", 3.09), ("qwen2.5-vl-7b", 7.07), ("smolvlm-2b", 1.71), ("text-7b", 6.61)],
)
def test_a_token_costs_two_flops_a_weight(name: str, billions: float) -> None:
    """Weights met by one token: published parameters without the input embedding."""
    first = language_flops(preset(name).language, [1])[0]
    assert first / 2e9 == pytest.approx(billions, rel=0.01)


def test_a_photo_is_tiles_and_a_global_view_to_smolvlm() -> None:
    photo = SampleTable.from_arrays(text_tokens=[10], image_heights=[[600]], image_widths=[[900]])
    costs = preset("smolvlm-2b")(photo)
    assert costs.patches.tolist() == [(3 * 4 + 1) * 27 * 27]
    assert costs.tokens.tolist() == [10 + 3 * (4 * (81 + 2) + 1) + 81 + 3]


def test_the_qwen_presets_count_tokens_like_their_rule() -> None:
    photo = SampleTable.from_arrays(text_tokens=[0], image_heights=[[600]], image_widths=[[900]])
    tokens = token_rule("qwen2.5-vl").images(np.array([600]), np.array([900])).tokens
    assert preset("qwen2.5-vl-3b")(photo).tokens.tolist() == tokens.tolist()


def test_an_unknown_preset_is_refused_with_those_known() -> None:
    with pytest.raises(ArgumentError, match=r"^name is 'gpt-5'; known presets: qwen2.5-vl-3b, .*"):
        preset("gpt-5")
