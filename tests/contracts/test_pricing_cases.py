"""Published complaints about costs, sizes and their input, each as a check; see README.md here."""

import os
import tracemalloc
import warnings
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from balancer.cost import Costs, evaluate_costs
from balancer.errors import ArgumentError, CapacityError, SampleError
from balancer.flops.presets import preset
from balancer.plan import Plan
from balancer.planner import EpochPlanner, plan_step
from balancer.samples import SampleTable
from balancer.tokens import token_rule
from balancer.topology import Limits, Topology

_BAD = [float("nan"), float("inf"), -1.0]


def test_case_d1_every_rank_gets_one_image_sample_and_one_text_sample() -> None:
    sides = [[]] * 4 + [[1792]] * 4  # 16,384 patches
    table = SampleTable.from_arrays(text_tokens=[1000] * 8, image_heights=sides, image_widths=sides)
    costs = preset("qwen2.5-vl-7b")(table)
    assert costs.patches.tolist() == [0] * 4 + [16384] * 4
    plan = plan_step(costs, Topology(dp_size=4, num_microbatches=1, barrier="step"))
    held = [plan.microbatch(step=0, index=0, dp_rank=rank) for rank in range(4)]
    assert [sorted((ids >= 4).tolist()) for ids in held] == [[False, True]] * 4


def test_case_d4_sizes_give_patches_within_the_pixel_budget_and_a_limit_on_patches_holds() -> None:
    rule = token_rule("qwen2-vl", max_pixels=1280 * 28 * 28)
    counts = rule.images(np.array([4000]), np.array([6000]))
    assert (counts.patches.item(), counts.tokens.item()) == (4988, 1247)
    costs = Costs.from_values([1.0, 1.0], patches=[100, 4988])
    limits = Limits(max_patches=4000)
    with pytest.raises(CapacityError, match="4988") as caught:
        plan_step(costs, Topology(dp_size=1, num_microbatches=2, limits=limits))
    assert caught.value.sample_ids == (1,)


def test_case_d6_totals_beyond_32_bits_are_exact() -> None:
    lengths = np.full(3, 10**9, np.int32)
    table = SampleTable.from_lengths(lengths)
    costs = evaluate_costs(lambda table: table.text_tokens, table)
    plan = plan_step(costs, Topology(dp_size=1))
    assert plan.amounts(costs)["tokens"].tolist() == [3_000_000_000]
    given = Costs.from_values(lengths, tokens=lengths)
    assert given.total.sum() == given.tokens.sum() == 3_000_000_000


@pytest.mark.parametrize("power", [1, 2])
def test_case_d7_the_limit_is_the_same_whatever_the_cost(power: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 1000, 64)
    costs = Costs.from_values(lengths.astype(float) ** power, tokens=lengths)
    topology = Topology(dp_size=4, num_microbatches=6, limits=Limits(max_tokens=2000))
    amounts = plan_step(costs, topology).amounts(costs)
    assert amounts["tokens"].max() <= 2000
    assert amounts["tokens"].sum() == lengths.sum()


def test_case_d9_a_cost_function_returns_one_number_or_several_a_sample() -> None:
    table = SampleTable.from_lengths([3, 5])
    one = evaluate_costs(lambda table: table.text_tokens * 2.0, table)
    assert one.values.tolist() == [[6.0], [10.0]]
    source_and_target = evaluate_costs(
        lambda table: np.stack([table.text_tokens, table.target_tokens + 1], axis=1), table
    )
    assert source_and_target.values.tolist() == [[3.0, 4.0], [5.0, 6.0]]
    with pytest.raises(ArgumentError, match="cost_model returned 1 rows for 2 samples"):
        evaluate_costs(lambda table: [1.0], table)


def test_case_f2_the_tokens_of_an_image_are_never_cut() -> None:
    table = SampleTable.from_arrays(
        text_tokens=[150, 150], image_heights=[[1120], []], image_widths=[[840], []]
    )
    costs = preset("qwen2.5-vl-7b")(table)
    assert costs.tokens.tolist() == [150 + 1200, 150]
    topology = Topology(dp_size=1, num_microbatches=1, limits=Limits(max_tokens=1024))
    with pytest.raises(CapacityError, match=r"sample 0\b.*1350.*1024") as caught:
        plan_step(costs, topology)
    assert caught.value.sample_ids == (0,)
    dropped = plan_step(costs, topology, oversize="drop")
    assert dropped.dropped.tolist() == [0]
    alone = plan_step(costs, topology, oversize="alone")
    assert alone.alone.tolist() == [0]
    assert sorted(alone.amounts(costs)["tokens"].tolist()) == [150, 1350]
    with pytest.raises(ArgumentError, match="oversize is 'truncate'; allowed"):
        plan_step(costs, topology, oversize="truncate")  # type: ignore[arg-type]


def _sizes(num: int) -> tuple[SampleTable, Costs]:
    sides = np.full(num, 56)
    ragged = (sides, np.arange(num + 1))
    table = SampleTable.from_arrays(
        text_tokens=sides, image_heights=ragged, image_widths=ragged, encoded_bytes=sides
    )
    return table, Costs.from_values(sides, tokens=sides)


def _planner(costs: Costs) -> EpochPlanner:
    return EpochPlanner(costs, Topology(dp_size=8, num_microbatches=4), global_batch_size=64)


def test_case_k1_millions_of_samples_are_a_few_blocks_of_memory() -> None:
    """Nothing has a reference count a sample, so a forked worker copies no page of it."""
    _planner(_sizes(100)[1])  # imports and compiles what is needed
    tracemalloc.start()
    try:
        table, costs = _sizes(2_000_000)
        planner = _planner(costs)
        blocks = sum(stat.count for stat in tracemalloc.take_snapshot().statistics("filename"))
    finally:
        tracemalloc.stop()
    assert (len(table), planner.num_steps) == (2_000_000, 31250)
    assert blocks < 2000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").is_file(), reason="needs smaps_rollup")
def test_case_k1_a_forked_worker_grows_by_less_than_ten_mebibytes_in_1500_batches() -> None:
    table, costs = _sizes(2_000_000)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on, where there are threads
        child = os.fork()
    if not child:
        _report_growth(table, costs, writing)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as report:
        assert int(report.read()) < 10 * 1024


def _report_growth(table: SampleTable, costs: Costs, writing: int) -> NoReturn:
    """Write the KiB that 1500 batches add to this process, and end it."""
    try:
        before = _private_kib()
        for start in range(0, 1500 * 64, 64):
            rows = np.arange(start, start + 64)
            costs.select(rows)
            table.select(rows)
        os.write(writing, str(_private_kib() - before).encode())
    finally:
        os._exit(0)


def _private_kib() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


@pytest.mark.parametrize("bad", _BAD)
@pytest.mark.parametrize("column", ["text_tokens", "target_tokens", "encoded_bytes"])
def test_case_m6_an_impossible_size_is_refused_with_its_sample(column: str, bad: float) -> None:
    columns = {"text_tokens": [1.0, 1.0, 1.0], column: [1.0, 1.0, bad]}
    with pytest.raises(SampleError, match=f"{column} of sample 2 is") as caught:
        SampleTable.from_arrays(**columns)  # type: ignore[arg-type]
    assert caught.value.sample_ids == (2,)


@pytest.mark.parametrize("bad", [*_BAD, 0.0])
@pytest.mark.parametrize("medium", ["image", "video", "audio"])
def test_case_m6_an_impossible_medium_is_refused_with_its_sample(medium: str, bad: float) -> None:
    sizes = [[], [10.0, bad]]
    columns = {
        "image": {"image_heights": sizes, "image_widths": sizes},
        "video": {"video_frames": sizes, "video_heights": sizes, "video_widths": sizes},
        "audio": {"audio_seconds": sizes},
    }
    with pytest.raises(SampleError, match="of sample 1 is") as caught:
        SampleTable.from_arrays(text_tokens=[0, 0], **columns[medium])
    assert caught.value.sample_ids == (1,)


@pytest.mark.parametrize("bad", _BAD)
def test_case_m6_an_impossible_cost_or_prep_is_refused_with_its_sample(bad: float) -> None:
    with pytest.raises(SampleError, match=r"language cost of sample 1 is .*finite numbers >= 0"):
        Costs.from_values([1.0, bad])
    with pytest.raises(SampleError, match=r"prep of sample 1 is .*finite numbers >= 0") as caught:
        Costs.from_values([1.0, 1.0], prep=[0.1, bad])
    assert caught.value.sample_ids == (1,)


def test_prep_goes_with_its_samples_and_into_no_balance() -> None:
    plain = Costs.from_values([1.0, 2.0, 3.0])
    costs = Costs.from_values([1.0, 2.0, 3.0], prep=[0.1, 0.2, 0.3])
    assert costs.select([2, 0]).prep is not None
    assert np.asarray(costs.select([2, 0]).prep).tolist() == [0.3, 0.1]
    assert costs.total.tolist() == plain.total.tolist()
    assert costs.fingerprint != plain.fingerprint
    topology = Topology(dp_size=3)
    plans: list[Plan] = [plan_step(each, topology) for each in (plain, costs)]
    assert plans[0].fingerprint == plans[1].fingerprint
    with pytest.raises(ArgumentError, match=r"prep has shape \(2,\)"):
        Costs.from_values([1.0, 2.0, 3.0], prep=[0.1, 0.2])
