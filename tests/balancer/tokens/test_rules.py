"""Properties that every token rule shares, the registry, and refusals."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.errors import ArgumentError
from balancer.tokens import TOKEN_RULES, MediaCounts, QwenVL, TokenRule, token_rule
from balancer.tokens.sizes import MAX_SIDE_PIXELS

COLUMNS = ("segments", "grid_heights", "grid_widths", "tokens", "legal", "patches")
SIDES = st.one_of(st.integers(1, 3000), st.integers(1, MAX_SIDE_PIXELS))
SIZES = st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=30)
VIDEOS = st.lists(
    st.tuples(
        st.integers(1, 10**6),
        st.one_of(st.just(math.nan), st.floats(0.1, 240)),
        st.integers(1, 5000),
        st.integers(1, 5000),
    ),
    min_size=1,
    max_size=30,
)
RULES = sorted(TOKEN_RULES)
few_examples = settings(max_examples=15, deadline=None)


def columns_of(counts: MediaCounts, order: Any = slice(None)) -> list[list[int]]:
    return [getattr(counts, column)[order].tolist() for column in COLUMNS]


@pytest.mark.parametrize("name", RULES)
@few_examples
@given(sizes=SIZES, data=st.data())
def test_permuting_images_permutes_their_counts(
    name: str, sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Counts of an image do not depend on its neighbours."""
    rule = token_rule(name)
    heights, widths = np.array(sizes).T
    order = np.array(data.draw(st.permutations(range(len(sizes)))))
    assert columns_of(rule.images(heights, widths), order) == columns_of(
        rule.images(heights[order], widths[order])
    )


@pytest.mark.parametrize("name", RULES)
@few_examples
@given(videos=VIDEOS)
def test_videos_count_as_they_do_alone(
    name: str, videos: list[tuple[int, float, int, int]]
) -> None:
    """Counts of a video do not depend on its neighbours."""
    rule = token_rule(name)
    together = rule.videos(*(np.array(column) for column in zip(*videos, strict=True)))
    alone = [rule.videos(*(np.array([value]) for value in video)) for video in videos]
    assert columns_of(together) == [
        [getattr(counts, column)[0].item() for counts in alone] for column in COLUMNS
    ]


@pytest.mark.parametrize("name", RULES)
@few_examples
@given(sizes=SIZES)
def test_counts_are_zero_exactly_where_a_size_is_illegal(
    name: str, sizes: list[tuple[int, int]]
) -> None:
    """Illegal means no patches, legal means at least one, and dtypes never vary."""
    counts = token_rule(name).images(*np.array(sizes).T)
    assert ((counts.patches > 0) == counts.legal).all()
    assert not counts.tokens[~counts.legal].any()
    assert counts.tokens.dtype == counts.patches.dtype == np.int64
    assert counts.legal.dtype == np.bool_


LARGEST_TOKENS = {
    "clip": 256,
    "internvl": 2 + 13 * 256,
    "llava-1.5": 576,
    "llava-next": 5 * 576 + 72,
    "mistral-small-3.1": 55 * 56,
    "pixtral": 64 * 65,
    "qwen2-vl": 16384,
    "qwen2.5-vl": 16384,
    "qwen3-vl": 16384,
    "siglip": 729,
    "text-only": 0,
}


@pytest.mark.parametrize("name", sorted(LARGEST_TOKENS))
@few_examples
@given(sizes=SIZES)
def test_no_image_exceeds_the_largest_token_count_of_its_family(
    name: str, sizes: list[tuple[int, int]]
) -> None:
    """The budget of a family bounds every image, whatever its size."""
    assert token_rule(name).images(*np.array(sizes).T).tokens.max() <= LARGEST_TOKENS[name]


@few_examples
@given(sizes=SIZES)
def test_qwen_tokens_are_merged_patches(sizes: list[tuple[int, int]]) -> None:
    """Every token of Qwen-VL stands for exactly merge_size squared patches."""
    for rule in (QwenVL.qwen2(), QwenVL.qwen3()):
        counts = rule.images(*np.array(sizes).T)
        assert (counts.tokens * 4 == counts.patches).all()


@few_examples
@given(sizes=SIZES)
def test_qwen_images_stay_within_their_pixel_budget(sizes: list[tuple[int, int]]) -> None:
    """Resized pixels never exceed max_pixels."""
    counts = QwenVL.qwen2(max_pixels=1280 * 28 * 28).images(*np.array(sizes).T)
    assert (counts.patches * 14 * 14 <= 1280 * 28 * 28).all()


@pytest.mark.parametrize("name", RULES)
def test_no_media_gives_empty_counts(name: str) -> None:
    rule = token_rule(name)
    no_sizes = np.zeros(0, np.int64)
    assert columns_of(rule.images(no_sizes, no_sizes)) == [[]] * len(COLUMNS)
    videos = rule.videos(no_sizes, np.zeros(0), no_sizes, no_sizes)
    assert columns_of(videos) == [[]] * len(COLUMNS)
    assert columns_of(rule.audio(np.zeros(0))) == [[]] * len(COLUMNS)


def test_text_only_takes_no_media() -> None:
    rule = token_rule("text-only")
    one = np.ones(1, np.int64)
    assert not rule.images(one, one).legal.any()
    assert not rule.videos(one, one * 1.0, one, one).legal.any()
    assert not rule.audio(one * 1.0).legal.any()


def test_an_unknown_frame_rate_counts_as_the_default_one() -> None:
    rule = QwenVL.qwen2()
    size = np.array([480])
    frames = np.array([300])
    known = rule.videos(frames, np.array([rule.default_fps]), size, size)
    unknown = rule.videos(frames, np.array([math.nan]), size, size)
    assert columns_of(known) == columns_of(unknown)


@pytest.mark.parametrize("name", RULES)
def test_names_tell_rules_with_other_settings_apart(name: str) -> None:
    assert token_rule(name).name == token_rule(name).name
    names = {token_rule(other).name for other in RULES}
    assert len(names) == len(RULES)
    assert QwenVL.qwen2(max_pixels=10**6).name != QwenVL.qwen2().name


def test_an_unknown_family_lists_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match=r"name is 'qwen9'.*internvl.*methods of TokenRule"):
        token_rule("qwen9")


def test_an_unknown_setting_lists_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match=r"settings has tiles; internvl has .*max_tiles"):
        token_rule("internvl", tiles=3)


@pytest.mark.parametrize(
    ("name", "chosen", "message"),
    [
        ("clip", {"patch_size": 500}, "patch_size is 500"),
        ("clip", {"tokens_per_image": 0}, "tokens_per_image is 0"),
        ("internvl", {"max_tiles": 0}, "max_tiles is 0"),
        ("internvl", {"tile_size": 450}, "tile_size is 450; it must be a multiple of patch_size"),
        ("llava-next", {"grid_pinpoints": ((300, 300),)}, "multiples of 336"),
        ("llava-next", {"grid_pinpoints": ()}, "pairs"),
        ("pixtral", {"pipeline": "fast"}, "pipeline is 'fast'"),
        ("pixtral", {"merge_size": -1}, "merge_size is -1"),
        ("qwen2-vl", {"max_pixels": 3}, "max_pixels is 3; it must be at least min_pixels"),
        ("qwen2-vl", {"video_fps": math.nan}, "video_fps is nan"),
        ("qwen2-vl", {"video_pipeline": "x"}, "video_pipeline is 'x'"),
        ("qwen2-vl", {"video_max_pixels": None}, "only qwen3_processor"),
        ("qwen3-vl", {"video_total_pixels": None}, "only qwen2_processor"),
    ],
)
def test_impossible_settings_are_refused_by_name(
    name: str, chosen: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        token_rule(name, **chosen)


def ones(*values: Any) -> Any:
    return np.array(values)


@pytest.mark.parametrize(
    ("heights", "widths", "message"),
    [
        (ones(1, 0), ones(1, 1), r"heights\[1\] is 0; it must be from 1 to 1048576"),
        (ones(1), ones(2**20 + 1), r"widths\[0\] is 1048577"),
        (ones(1), ones(1, 1), "widths has 2 items but heights has 1"),
        (ones(1.5), ones(1), "heights has shape .* dtype float64"),
        (ones([1, 2]), ones(1), r"heights has shape \(1, 2\)"),
    ],
)
def test_impossible_image_sizes_are_refused(heights: Any, widths: Any, message: str) -> None:
    rule: TokenRule = token_rule("qwen2-vl")
    with pytest.raises(ArgumentError, match=message):
        rule.images(heights, widths)


@pytest.mark.parametrize("fps", [0.0, -1.0, math.inf])
def test_impossible_frame_rates_are_refused(fps: float) -> None:
    with pytest.raises(ArgumentError, match=r"fps\[0\] is .*nan where unknown"):
        token_rule("qwen2-vl").videos(ones(9), ones(fps), ones(9), ones(9))


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_impossible_durations_are_refused(seconds: float) -> None:
    with pytest.raises(ArgumentError, match=r"seconds\[0\] is .*positive"):
        token_rule("qwen2-vl").audio(ones(seconds))
