"""FlopsCost: samples priced by their text and media."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.cost import evaluate_costs
from balancer.errors import ArgumentError, SampleError
from balancer.flops.cost import FlopsCost
from balancer.flops.dimensions import AudioDims, LanguageDims, VisionDims
from balancer.flops.forward import language_flops, vision_flops
from balancer.samples import SampleTable
from balancer.tokens import FamilyRule, MediaCounts, media_counts, token_rule

LANGUAGE = LanguageDims(depth=2, width=8, num_heads=4, mlp_width=20, vocab_size=50)
VISION = VisionDims(
    depth=3,
    width=8,
    num_heads=2,
    mlp_width=20,
    patch_values=12,
    merge=4,
    projector_widths=(32, 8),
    window=8,
    full_attention_layers=1,
)
COST = FlopsCost(vision=VISION, language=LANGUAGE, rule=token_rule("qwen2.5-vl"))
MIXED = SampleTable.from_arrays(
    text_tokens=[10, 20, 30, 40],
    image_heights=[[480], [], [56, 1080], []],
    image_widths=[[640], [], [56, 1920], []],
    video_frames=[[], [], [], [64]],
    video_fps=[[], [], [], [24.0]],
    video_heights=[[], [], [], [360]],
    video_widths=[[], [], [], [640]],
)


class TenSecondWindows(FamilyRule):
    """A rule for audio alone: windows of 10 s, 100 positions and 25 tokens each."""

    def audio(self, seconds: np.ndarray) -> MediaCounts:
        windows = np.ceil(seconds / 10).astype(np.int64)
        return media_counts(
            segments=windows,
            grid_heights=1,
            grid_widths=100,
            tokens=25 * windows,
            legal=seconds <= 60,
        )


def test_tokens_are_text_and_merged_media() -> None:
    costs = COST(MIXED)
    media = COST.rule.images(np.array([480, 56, 1080]), np.array([640, 56, 1920])).tokens
    assert costs.tokens[:3].tolist() == [10 + media[0], 20, 30 + media[1] + media[2]]
    assert costs.tokens[3] > 40
    assert costs.images.tolist() == [1, 0, 2, 0]


def test_each_module_is_three_forwards_of_its_part() -> None:
    costs = COST(MIXED)
    assert costs.modules == ("vision", "language")
    assert costs.unit == "flops"
    images = COST.rule.images(np.array([56, 1080]), np.array([56, 1920]))
    vision = vision_flops(VISION, images.segments, images.grid_heights, images.grid_widths)
    stems = 2 * 12 * 8 * images.patches  # the patch embedding needs no gradient of its input
    np.testing.assert_allclose(costs.values[2, 0], (3 * vision - stems).sum(), rtol=1e-12)
    language = 3 * language_flops(LANGUAGE, costs.tokens)
    np.testing.assert_allclose(costs.values[:, 1], language, rtol=1e-12)
    assert costs.patches[2] == images.patches.sum()


def test_text_only_samples_cost_no_vision() -> None:
    costs = COST(MIXED)
    assert costs.values[1, 0] == 0
    assert costs.patches[1] == 0


def test_one_long_sample_costs_more_than_its_halves() -> None:
    whole, first, second = COST(SampleTable.from_lengths([1024, 512, 512])).values[:, 1]
    assert whole > first + second


@given(st.permutations(range(4)))
def test_a_sample_costs_the_same_in_any_company(order: list[int]) -> None:
    """Invariant: costs(table.select(rows)) == costs(table).select(rows), bit for bit."""
    assert COST(MIXED.select(order)).fingerprint == COST(MIXED).select(order).fingerprint


@pytest.mark.parametrize("training", ["frozen", "frozen_with_grad"])
def test_freezing_the_tower_makes_vision_cheaper_and_leaves_language_alone(training: str) -> None:
    frozen = replace(COST, vision_training=training)(MIXED).values
    trained = COST(MIXED).values
    assert (frozen[[0, 2, 3], 0] < trained[[0, 2, 3], 0]).all()
    assert frozen[:, 1].tolist() == trained[:, 1].tolist()


def test_a_frozen_tower_and_projector_cost_one_forward() -> None:
    frozen = replace(COST, vision_training="frozen", projector_training="frozen")(MIXED)
    images = COST.rule.images(np.array([480]), np.array([640]))
    forward = vision_flops(VISION, images.segments, images.grid_heights, images.grid_widths)
    np.testing.assert_allclose(frozen.values[0, 0], forward[0], rtol=1e-12)


def test_a_frozen_tower_spares_the_projector_the_gradient_of_its_input() -> None:
    apart = replace(COST, vision_training="frozen")(MIXED).values[0, 0]
    nothing = replace(COST, vision_training="frozen", projector_training="frozen")(MIXED)
    inputs = COST(MIXED).patches[0] / 4
    weight_gradients = 2 * inputs * (32 * 32 + 32 * 8)
    input_gradients = 2 * inputs * 32 * 8
    np.testing.assert_allclose(
        apart - nothing.values[0, 0], weight_gradients + input_gradients, rtol=1e-9
    )


def test_without_vision_dimensions_the_tokens_still_count() -> None:
    costs = replace(COST, vision=None)(MIXED)
    assert costs.modules == ("language",)
    assert costs.tokens.tolist() == COST(MIXED).tokens.tolist()


def test_audio_is_a_module_of_its_own() -> None:
    audio = AudioDims(depth=2, width=8, num_heads=2, mlp_width=20, projector_widths=(8,))
    cost = FlopsCost(audio=audio, language=LANGUAGE, rule=TenSecondWindows())
    table = SampleTable.from_arrays(text_tokens=[5, 5, 5], audio_seconds=[[9.0, 11.0], [], [30.0]])
    costs = cost(table)
    assert costs.modules == ("audio", "language")
    assert costs.tokens.tolist() == [5 + 75, 5, 5 + 75]
    assert costs.values[:, 0].tolist() == [costs.values[2, 0], 0.0, costs.values[2, 0]]


def test_media_the_rule_refuses_are_named_with_their_samples() -> None:
    table = SampleTable.from_arrays(
        text_tokens=[1, 1, 1],
        image_heights=[[], [28, 9000], [9000]],
        image_widths=[[], [28, 28], [30]],
    )
    costs = COST(table)
    assert costs.illegal.tolist() == [1, 2]
    assert "takes no image of 9000 x 28 pixels" in costs.illegal_because
    with pytest.raises(SampleError, match=r"in sample 1; .* pass illegal=\"drop\"") as one:
        costs.check_legal()
    assert one.value.sample_ids == (1, 2)
    text = FlopsCost(language=LANGUAGE, rule=token_rule("text-only"))
    assert text(table).illegal.tolist() == [1, 2]
    clips = SampleTable.from_arrays(text_tokens=[1, 1], audio_seconds=[[5.0], [61.0]])
    heard = FlopsCost(language=LANGUAGE, rule=TenSecondWindows())(clips)
    assert heard.illegal.tolist() == [1]
    assert "takes no audio of 61 seconds, in sample 1" in heard.illegal_because


def test_choices_are_checked_at_construction_by_name() -> None:
    with pytest.raises(ArgumentError, match=r"^vision_training is 'lora'; allowed: 'trained'"):
        FlopsCost(language=LANGUAGE, rule=FamilyRule(), vision_training="lora")
    with pytest.raises(ArgumentError, match=r"^causal is 'upper'; allowed: 'half', 'full'"):
        FlopsCost(language=LANGUAGE, rule=FamilyRule(), causal="upper")
    with pytest.raises(ArgumentError, match=r"^attention_backward is nan"):
        FlopsCost(language=LANGUAGE, rule=FamilyRule(), attention_backward=float("nan"))


def test_an_empty_table_has_no_costs() -> None:
    assert COST(SampleTable.from_lengths([])).values.shape == (0, 2)


def test_it_is_a_cost_model() -> None:
    assert evaluate_costs(COST, MIXED).fingerprint == COST(MIXED).fingerprint


def test_it_survives_pickling() -> None:
    """Loader workers started by spawn get it this way."""
    assert pickle.loads(pickle.dumps(COST)) == COST
