"""Forward FLOPs: small cases by hand, and what must hold for every size."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.errors import ArgumentError
from balancer.flops.audio import audio_flops
from balancer.flops.dimensions import AudioDims, LanguageDims, VisionDims
from balancer.flops.forward import (
    language_flops,
    language_forward,
    projector_forward,
    vision_flops,
    vision_forward,
)

TOWER = VisionDims(depth=3, width=8, num_heads=2, mlp_width=20, patch_values=12)
DENSE = LanguageDims(depth=2, width=8, num_heads=4, num_kv_heads=2, mlp_width=20, vocab_size=50)
GRIDS = st.integers(1, 40)
TOKENS = st.integers(1, 200_000)


def windowed(window: int | None, full: int = 0) -> VisionDims:
    return VisionDims(
        depth=3,
        width=8,
        num_heads=2,
        mlp_width=20,
        patch_values=12,
        window=window,
        full_attention_layers=full,
    )


def test_a_vision_layer_is_eight_squared_widths_and_two_mlp_matrices_a_patch() -> None:
    forward = vision_forward(TOWER, [1], [2], [3])
    patches = 6
    assert forward.stem[0] == 2 * 12 * 8 * patches
    assert forward.layer[0] + forward.layer_end[0] == 3 * patches * (8 * 8**2 + 4 * 8 * 20)
    assert forward.attention[0] == 3 * 4 * 8 * patches**2


def test_a_class_token_joins_the_layers_of_each_segment_but_not_the_patch_embedding() -> None:
    with_class = VisionDims(
        depth=3, width=8, num_heads=2, mlp_width=20, patch_values=12, prefix_tokens=1
    )
    forward = vision_forward(with_class, [2], [2], [3])
    assert forward.stem[0] == 2 * vision_forward(TOWER, [1], [2], [3]).stem[0]
    assert forward.attention[0] == 2 * 3 * 4 * 8 * 7**2


def test_edge_windows_are_smaller() -> None:
    forward = vision_forward(windowed(8), [1], [12], [10])
    pairs = sum((rows * columns) ** 2 for rows in (8, 4) for columns in (8, 2))
    assert forward.attention[0] == 3 * 4 * 8 * pairs


def test_full_attention_layers_ignore_the_window() -> None:
    some = vision_forward(windowed(4, full=1), [2], [8], [8]).attention[0]
    all_windowed = vision_forward(windowed(4), [2], [8], [8]).attention[0]
    all_full = vision_forward(windowed(None), [2], [8], [8]).attention[0]
    assert some == pytest.approx(all_windowed * 2 / 3 + all_full / 3, rel=1e-12)


def test_the_projector_merges_patches_before_its_first_layer() -> None:
    dims = VisionDims(
        depth=1,
        width=8,
        num_heads=2,
        mlp_width=20,
        patch_values=12,
        merge=4,
        projector_widths=(32, 10),
        num_projectors=2,
    )
    forward = projector_forward(dims, [12])
    assert forward.head[0] == 2 * 3 * (2 * 32 * 32 + 2 * 32 * 10)
    frozen_below = projector_forward(dims, [12], encoder_trains=False)
    assert frozen_below.stem[0] == 2 * 3 * 2 * 32 * 32
    assert frozen_below.total[0] == forward.total[0]
    with_norm = replace(dims, projector_norm=True)
    assert projector_forward(with_norm, [12], encoder_trains=False).stem[0] == 0


def test_a_language_layer_counts_grouped_heads_and_three_mlp_matrices() -> None:
    forward = language_forward(DENSE, [10])
    weights = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 20
    assert forward.layer[0] + forward.layer_end[0] == 2 * 2 * weights * 10
    assert forward.attention[0] == 2 * 4 * 8 * (10 * 11 / 2)
    assert forward.head[0] == 2 * 8 * 50 * 10


def test_the_full_convention_counts_the_whole_square() -> None:
    assert language_forward(DENSE, [10], causal="full").attention[0] == 2 * 4 * 8 * 100


def test_the_head_may_see_fewer_tokens() -> None:
    forward = language_forward(DENSE, [10, 10], [10, 3])
    assert forward.head[1] == forward.head[0] * 0.3


def test_experts_replace_the_mlp_and_the_router_is_counted() -> None:
    moe = LanguageDims(
        depth=2,
        width=8,
        num_heads=4,
        mlp_width=20,
        vocab_size=0,
        num_experts=6,
        experts_per_token=2,
        expert_width=5,
        shared_expert_width=7,
        shared_expert_gate=True,
        dense_layers=1,
    )
    attention = 4 * 8 * 8
    sparse = 3 * 8 * (2 * 5 + 7) + 8 * 7
    forward = language_forward(moe, [3])
    expected = 2 * 3 * (2 * attention + 3 * 8 * 20 + sparse)
    assert forward.layer[0] + forward.layer_end[0] == expected


def test_two_halves_cost_less_than_the_whole() -> None:
    whole, half = language_flops(DENSE, [1024, 512])
    assert whole > 2 * half


def test_a_window_of_audio_is_a_sequence_of_its_own() -> None:
    dims = AudioDims(depth=2, width=8, num_heads=2, mlp_width=20, projector_widths=(10,), pool=2)
    one, three = audio_flops(dims, [1, 3], [30, 30])
    assert three == 3 * one
    assert audio_flops(dims, [1], [90])[0] > three


@given(st.lists(st.tuples(st.integers(1, 9), GRIDS, GRIDS), min_size=1, max_size=8))
def test_an_item_costs_the_same_alone_and_among_others(items: list[tuple[int, int, int]]) -> None:
    """Invariant: cost(items) is the concatenation of cost([item])."""
    segments, rows, columns = zip(*items, strict=True)
    together = vision_flops(windowed(4, full=1), segments, rows, columns)
    alone = [vision_flops(windowed(4, full=1), [s], [r], [c])[0] for s, r, c in items]
    assert together.tolist() == alone


@given(GRIDS, GRIDS, st.integers(1, 12))
def test_windows_are_the_sum_over_every_window(rows: int, columns: int, window: int) -> None:
    """Invariant: pairs = sum over the windows of the squared number of their patches."""
    row_parts = [min(window, rows - start) for start in range(0, rows, window)]
    column_parts = [min(window, columns - start) for start in range(0, columns, window)]
    pairs = sum((r * c) ** 2 for r in row_parts for c in column_parts)
    assert vision_forward(windowed(window), [1], [rows], [columns]).attention[0] == 96 * pairs


@given(GRIDS, GRIDS, st.integers(1, 50))
def test_windowed_attention_never_costs_more(rows: int, columns: int, window: int) -> None:
    """Invariant: windowed <= global, with equality once one window holds the grid."""
    local = vision_flops(windowed(window), [1], [rows], [columns])[0]
    everywhere = vision_flops(windowed(None), [1], [rows], [columns])[0]
    assert local <= everywhere
    assert (local == everywhere) == (window >= max(rows, columns))


@given(GRIDS, GRIDS)
def test_vision_cost_grows_with_patches(rows: int, columns: int) -> None:
    """Invariant: one more row of patches costs more."""
    less, more = vision_flops(windowed(4, full=1), [1, 1], [rows, rows + 1], [columns] * 2)
    assert less < more


@given(TOKENS)
def test_language_cost_grows_with_tokens_in_every_convention(tokens: int) -> None:
    """Invariant: strictly increasing in tokens; sliding <= half <= full."""
    sliding = LanguageDims(
        depth=2,
        width=8,
        num_heads=4,
        mlp_width=20,
        vocab_size=50,
        sliding_window=64,
        sliding_layers=2,
    )
    plain = LanguageDims(depth=2, width=8, num_heads=4, mlp_width=20, vocab_size=50)
    for dims in (sliding, plain):
        less, more = language_flops(dims, [tokens, tokens + 1])
        assert less < more
    order = [
        language_flops(sliding, [tokens])[0],
        language_flops(plain, [tokens])[0],
        language_flops(plain, [tokens], causal="full")[0],
    ]
    assert order == sorted(order)


@given(TOKENS, TOKENS)
def test_the_linear_part_is_additive(first: int, second: int) -> None:
    """Invariant: weights cost per token, so linear(a + b) = linear(a) + linear(b)."""
    one, other, joined = (
        forward.layer[0] + forward.layer_end[0] + forward.head[0]
        for forward in (language_forward(DENSE, [n]) for n in (first, second, first + second))
    )
    assert joined == one + other


def test_nothing_costs_nothing() -> None:
    assert language_flops(DENSE, [0])[0] == 0
    assert vision_flops(TOWER, [0], [0], [0])[0] == 0
    assert vision_flops(TOWER, [], [], []).shape == (0,)


def test_shapes_that_differ_are_refused_by_name() -> None:
    with pytest.raises(ArgumentError, match=r"^grid_widths has shape \(1,\)"):
        vision_flops(TOWER, [1, 1], [2, 2], [2])
    with pytest.raises(ArgumentError, match=r"^tokens has a negative number or NaN"):
        language_flops(DENSE, [-1])
    with pytest.raises(ArgumentError, match=r"^tokens has a negative number or NaN"):
        language_flops(DENSE, [np.nan])
    with pytest.raises(ArgumentError, match=r"^positions has shape"):
        audio_flops(AudioDims(depth=1, width=8, num_heads=1, mlp_width=8), [1, 1], [4])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 0}, "^depth is 0; allowed: whole numbers >= 1"),
        ({"width": 9}, "^num_heads is 4, which does not divide width = 9"),
        ({"sliding_layers": 3, "sliding_window": 4}, "^sliding_layers is 3, more than depth = 2"),
        ({"sliding_layers": 1}, "^sliding_window is None"),
        ({"num_experts": 4}, "^experts_per_token is 0"),
        ({"head_dim": 2.5}, "^head_dim is 2.5"),
    ],
)
def test_impossible_dimensions_are_refused_by_name(change: dict[str, object], message: str) -> None:
    dims = {"depth": 2, "width": 8, "num_heads": 4, "mlp_width": 20, "vocab_size": 50}
    with pytest.raises(ArgumentError, match=message):
        LanguageDims(**{**dims, **change})


def test_a_window_with_a_class_token_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^prefix_tokens is 1; allowed with a window: 0"):
        VisionDims(
            depth=1, width=8, num_heads=1, mlp_width=8, patch_values=4, window=4, prefix_tokens=1
        )
