"""pack(): every rule keeps samples and limits, and none needs more bins than it promises."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.errors import ArgumentError, CapacityError, SampleError
from balancer.packing import Packing, pack
from tests import naive_packing as naive

_METHODS = ("best_fit_decreasing", "first_fit_decreasing", "next_fit")
_LENGTHS = st.one_of(
    st.lists(st.integers(0, 50), max_size=40),
    st.lists(st.integers(10, 30), max_size=60),
)


@st.composite
def _problems(draw: st.DrawFn, most: int = 40) -> dict[str, Any]:
    size = draw(st.integers(0, most))
    options: dict[str, Any] = {
        "lengths": draw(st.lists(st.integers(0, 40), min_size=size, max_size=size)),
        "capacity": draw(st.sampled_from([48, 56, 97])),
        "layout": draw(st.sampled_from(["packed", "padded"])),
        "method": draw(st.sampled_from(_METHODS)),
        "effort": draw(st.sampled_from([0, 1, 3])),
        "pad_sample_to": draw(st.sampled_from([1, 8])),
        "pad_bin_to": draw(st.sampled_from([1, 16])),
        "max_samples": draw(st.sampled_from([None, 1, 3])),
    }
    if draw(st.booleans()):
        images = draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
        options["amounts"] = {"images": (images, 5)}
    return options


def _allowed(ids: Any, options: dict[str, Any]) -> bool:
    """Whether samples may share a bin, by the definition of every option."""
    step, bin_step = options["pad_sample_to"], options["pad_bin_to"]
    own = [-(-options["lengths"][i] // step) * step for i in ids]
    taken = len(own) * max(own) if options["layout"] == "padded" else sum(own)
    images = options.get("amounts", {}).get("images", ([0] * len(options["lengths"]), 0))
    return (
        -(-taken // bin_step) * bin_step <= options["capacity"]
        and len(own) <= (options["max_samples"] or len(own))
        and sum(images[0][i] for i in ids) <= images[1]
    )


def _ids(packing: Packing) -> list[list[int]]:
    return [ids.tolist() for ids in packing]


@given(_problems())
def test_every_sample_is_in_one_bin_and_every_bin_within_the_limits(
    options: dict[str, Any],
) -> None:
    """Conservation and caps hold for every method, layout, rounding and set of limits."""
    packing = pack(**options)
    assert sorted(packing.sample_ids.tolist()) == list(range(len(options["lengths"])))
    assert all(_allowed(ids, options) for ids in _ids(packing))
    assert packing.num_bins >= packing.lower_bound
    if options["method"] == "next_fit":
        assert packing.sample_ids.tolist() == list(range(len(options["lengths"])))


@given(_problems(most=8))
def test_the_lower_bound_holds_for_the_best_packing_there_is(options: dict[str, Any]) -> None:
    """For up to eight samples: bound <= fewest bins by brute force <= ours."""
    packing = pack(**options)
    fewest = naive.fewest_bins(len(options["lengths"]), lambda ids: _allowed(ids, options))
    assert packing.lower_bound <= fewest <= packing.num_bins
    only_rows = options.get("amounts") is None and options["layout"] == "padded"
    if only_rows and options["method"] != "next_fit":
        assert packing.num_bins == fewest


@given(_LENGTHS, st.sampled_from([0, 1, 2]))
def test_the_default_needs_no_more_bins_than_best_fit_decreasing(
    lengths: list[int], effort: int
) -> None:
    """Bins <= those of the naive rule, and equal to it bin by bin without effort."""
    packing = pack(lengths, 50, effort=effort)
    expected = naive.best_fit_decreasing(lengths, 50)
    assert packing.num_bins <= len(expected)
    assert -(-sum(lengths) // 50) <= packing.lower_bound <= packing.num_bins
    if effort == 0:
        assert _ids(packing) == expected


@given(_LENGTHS)
def test_first_fit_decreasing_is_the_naive_rule(lengths: list[int]) -> None:
    """Bin for bin what a linear scan over the bins gives."""
    packing = pack(lengths, 50, method="first_fit_decreasing")
    assert _ids(packing) == naive.first_fit_decreasing(lengths, 50)


@given(_problems())
def test_several_limits_never_need_more_bins_than_first_fit_by_share(
    options: dict[str, Any],
) -> None:
    """The default is at most first-fit decreasing on the same limits."""
    fixed = options | {"layout": "packed"}
    ours = pack(**fixed | {"method": "best_fit_decreasing"})
    first = pack(**fixed | {"method": "first_fit_decreasing"})
    assert ours.num_bins <= first.num_bins


@given(_LENGTHS, st.sampled_from(["drop", "alone"]))
def test_oversize_samples_are_reported_and_lost_only_if_dropped(
    lengths: list[int], oversize: Any
) -> None:
    """Kept, dropped and alone ids together are all ids; those alone have the last bins."""
    packing = pack(lengths, 20, oversize=oversize)
    over = [i for i, length in enumerate(lengths) if length > 20]
    assert packing.dropped.tolist() == (over if oversize == "drop" else [])
    assert packing.alone.tolist() == (over if oversize == "alone" else [])
    placed = sorted([*packing.sample_ids.tolist(), *packing.dropped.tolist()])
    assert placed == list(range(len(lengths)))
    if packing.alone.size:
        assert _ids(packing)[-len(over) :] == [[i] for i in over]


def test_large_capacities_and_mixed_sizes_are_packed_like_small_ones() -> None:
    lengths = np.random.default_rng(0).integers(1, 50, 400)
    for effort in (0, 1):
        small, large = (pack(lengths * s, 50 * s, effort=effort) for s in (1, 10**9))
        assert small.num_bins == large.num_bins
        if effort == 0:
            assert (small.sample_ids == large.sample_ids).all()


def test_real_tiles_are_padded_a_third_as_much_as_the_one_percent_asked_for(
    shared_data: Path,
) -> None:
    from pyarrow import parquet

    path = shared_data / "traces" / "internvl_sft_tiles.parquet"
    lengths = parquet.read_table(path, columns=["seq_tokens"])["seq_tokens"].to_numpy()
    plain, default, more = (pack(lengths, 4096, effort=effort) for effort in (0, 1, 3))
    assert 0.030 < plain.padding_fraction < 0.031
    assert default.padding_fraction < 0.003
    assert more.num_bins < default.num_bins


def test_two_limits_are_both_used_up_when_images_bind() -> None:
    rng = np.random.default_rng(0)
    images = np.where(rng.random(5000) < 0.6, np.minimum(rng.geometric(0.5, 5000), 6), 0)
    lengths = np.rint(rng.lognormal(5.2, 1, 5000)).astype(np.int64) + images * 600 + 1
    for most in (64, 12, 9, 7):
        packing = pack(lengths, 8192, amounts={"images": (images, most)}, oversize="drop")
        assert packing.gap < 0.01


def test_limits_of_the_known_cases() -> None:
    assert {len(ids) for ids in pack([5] * 10, 40, pad_sample_to=8)} == {5}
    assert {len(ids) for ids in pack([1] * 10_000, 8192, max_samples=256)} <= {256, 16}
    rows = pack([2] * 1024 + [2048], 4096, layout="padded")
    assert all(len(ids) * (2048 if 1024 in ids else 2) <= 4096 for ids in rows)
    pairs = pack([10] * 100 + [1000] * 100, 4096, amounts={"images": ([4] * 100 + [0] * 100, 16)})
    assert pairs.num_bins == pairs.lower_bound == 25
    assert pack([20], 20).num_bins == 1


def test_an_empty_input_has_no_bins() -> None:
    packing = pack([], 10)
    assert (packing.num_bins, packing.lower_bound, packing.gap) == (0, 0, 0.0)
    assert packing.offsets.tolist() == [0]


def test_a_packing_is_read_like_a_sequence_and_cannot_be_changed() -> None:
    packing = pack([5, 3, 2, 4], 7)
    assert len(packing) == 2
    assert packing[-1].tolist() == [3, 1]
    with pytest.raises(IndexError, match="bin 2 of 2"):
        packing[2]
    with pytest.raises(ValueError, match="read-only"):
        packing.sample_ids[0] = 1


def test_an_oversize_sample_is_named_with_what_would_hold_it() -> None:
    with pytest.raises(CapacityError, match=r"sample 1: length is 21, a bin holds 20; 1 such") as e:
        pack([3, 21], 20)
    assert e.value.sample_ids == (1,)
    assert "raise capacity to 21" in str(e.value)
    with pytest.raises(CapacityError, match=r"18 \(rounded up to 24\).*capacity to 32"):
        pack([18], 31, pad_sample_to=8, pad_bin_to=16)
    with pytest.raises(CapacityError, match=r"images is 9.*amounts\['images'\]\[1\] to 9"):
        pack([1, 1], 20, amounts={"images": ([9, 1], 4)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capacity": 0}, "capacity is 0"),
        ({"capacity": 1.5}, "capacity is 1.5"),
        ({"method": "worst_fit"}, "method is 'worst_fit'"),
        ({"layout": "rows"}, "layout is 'rows'"),
        ({"oversize": "split"}, "oversize is 'split'"),
        ({"effort": -1}, "effort is -1"),
        ({"pad_sample_to": 0}, "pad_sample_to is 0"),
        ({"pad_bin_to": 0}, "pad_bin_to is 0"),
        ({"max_samples": 0}, "max_samples is 0"),
        ({"lengths": [[1, 2]]}, "lengths has shape"),
        ({"lengths": [1.0, 2.0]}, "dtype float64"),
        ({"amounts": {"images": ([1], 4)}}, r"amounts\['images'\] has 1 values"),
        ({"amounts": {"images": ([1, 1], 0)}}, r"amounts\['images'\]\[1\] is 0"),
    ],
)
def test_a_wrong_argument_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        pack(**({"lengths": [1, 2], "capacity": 4} | changes))


def test_negative_sizes_name_their_samples() -> None:
    with pytest.raises(SampleError, match="sample 1: length is -2") as caught:
        pack([1, -2, -3], 4)
    assert caught.value.sample_ids == (1, 2)
    with pytest.raises(SampleError, match="sample 0: images is -1"):
        pack([1], 4, amounts={"images": ([-1], 4)})
