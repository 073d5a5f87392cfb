"""loader.stats() says of what was handed out what the plan says of itself."""

import csv
import inspect
import json
import logging

import numpy as np
import pytest

from balancer.measures import measure_plan
from balancer.plan import Flag
from loaders.collate import PaddedCollator
from loaders.loader import BalancedDataLoader
from loaders.step_log import StepLog, TensorBoardLog
from loaders.uniform import padding_fraction
from tests.loaders.planning import TextDataset, ids_of, skewed_lengths, text_tokens

NUM_SAMPLES = 70


class Broken(TextDataset):
    """Sample 13 cannot be read."""

    def __getitem__(self, index):
        if index == 13:
            raise OSError("no such file")
        return super().__getitem__(index)


def make_loader(dataset=None, **options):
    settings = {
        "cost_model": text_tokens, "global_batch_size": 16, "num_microbatches": 2, "dp_rank": 0,
        "dp_size": 2, "collate_fn": ids_of, "effort": "fast",
    }  # fmt: skip
    dataset = dataset or TextDataset(skewed_lengths(NUM_SAMPLES))
    return BalancedDataLoader(dataset, **(settings | options))


def test_case_d8_imbalance_is_the_mean_over_microbatches_of_max_over_mean_of_the_ranks():
    loader = make_loader()
    plan, costs = loader.batch_sampler.planner.plan_epoch(0), loader.batch_sampler.planner.costs
    loads = np.add.reduceat(costs.total[plan.sample_ids], plan.offsets[:-1]).reshape(-1, 2)
    ratios = loads.max(axis=1) / loads.mean(axis=1)
    list(loader)
    stats = loader.stats()
    assert stats["imbalance_mean"] == pytest.approx(ratios.mean())
    assert stats["imbalance_max"] == pytest.approx(ratios.max())
    assert stats["imbalance_p95"] == pytest.approx(np.quantile(ratios, 0.95))
    assert ratios.max() > 1


@pytest.mark.parametrize("tail", ["drop", "pad", "filler"])
def test_counts_add_up_over_the_ranks_to_those_of_the_plan(tail):
    options = {"tail": tail, "max_tokens": 600, "max_microbatches": 2}
    loaders = [make_loader(dp_rank=rank, **options) for rank in (0, 1)]
    planner = loaders[0].batch_sampler.planner
    plan = planner.plan_epoch(0)
    measures = measure_plan(plan, planner.costs)
    both = []
    for loader in loaders:
        list(loader)
        both.append(loader.stats())
    counted = plan.sample_ids[plan.flags != Flag.FILLER]
    targets = int(planner.costs.select(counted).target_tokens.sum())
    assert sum(stats["samples"] for stats in both) == len(counted)
    assert sum(stats["target_tokens"] for stats in both) == targets
    assert sum(stats["repeats"] for stats in both) == (plan.flags == Flag.REPEAT).sum()
    assert sum(stats["fillers"] for stats in both) == (plan.flags == Flag.FILLER).sum()
    assert np.mean([stats["fill_tokens"] for stats in both]) == pytest.approx(
        measures.fill["tokens"][0]
    )
    for stats in both:
        assert stats["dropped"] == len(plan.dropped) == (NUM_SAMPLES % 16 if tail == "drop" else 0)
        assert stats["steps"] == plan.num_steps
        assert stats["microbatches"] == plan.step_slots[-1]
        assert stats["effective_batch_size"] == len(counted) / plan.num_steps
        assert stats["target_tokens_per_step"] == targets / plan.num_steps
        assert all(type(value) in (int, float) for value in stats.values())
        assert json.loads(json.dumps(stats)) == stats


@pytest.mark.parametrize("uniform_shape", [False, True])
def test_padding_is_that_of_the_tensors(uniform_shape):
    collate = PaddedCollator(pad_token_id=0, uniform_shape=uniform_shape)
    loaders = [make_loader(dp_rank=rank, collate_fn=collate) for rank in (0, 1)]
    planner = loaders[0].batch_sampler.planner
    tokens = allocated = 0
    for loader in loaders:
        mine = 0
        for batch in loader:
            mine += int((batch["sequence_ids"] >= 0).sum())
            allocated += batch["input_ids"].numel()
        tokens += mine
        share = loader.stats()["padding_fraction"]
        assert 0 < share < 1
    expected = padding_fraction(planner.plan_epoch(0), planner.costs, uniform_shape=uniform_shape)
    assert 1 - tokens / allocated == pytest.approx(expected)
    if not uniform_shape:
        assert loader.stats()["padding_fraction"] != pytest.approx(0)
    only = make_loader(dp_rank=0, dp_size=1, collate_fn=collate, global_batch_size=16)
    list(only)
    plan, costs = only.batch_sampler.planner.plan_epoch(0), only.batch_sampler.planner.costs
    assert only.stats()["padding_fraction"] == pytest.approx(
        padding_fraction(plan, costs, uniform_shape=uniform_shape)
    )


def test_samples_move_as_far_as_the_planner_says():
    loader = make_loader(window_steps=4, global_batch_size=4, num_microbatches=1)
    planner = loader.batch_sampler.planner
    plan = planner.plan_epoch(0)
    ids, moved = planner.displacement(plan)
    mine = np.concatenate(list(plan.for_rank(0)))
    far = abs(moved[np.searchsorted(ids, mine)])
    list(loader)
    assert loader.stats()["moved_steps_mean"] == pytest.approx(far.mean())
    assert loader.stats()["moved_steps_max"] == far.max() > 0


def test_numbers_are_of_what_was_handed_out_and_begin_anew_with_an_epoch():
    loader = make_loader(num_workers=1)
    assert loader.stats()["microbatches"] == 0
    for number, _ in enumerate(loader):
        if number == 2:
            break
    stats = loader.stats()
    assert (stats["microbatches"], stats["steps"]) == (3, 1)
    assert stats["planning_seconds"] > 0
    assert 0 < stats["data_wait_fraction"] < 1
    longest, half = stats["data_wait_seconds_longest"], stats["data_wait_seconds_p50"]
    assert longest >= stats["data_wait_seconds_p95"] >= half > 0
    list(loader)
    stats = loader.stats()
    assert (stats["epoch"], stats["microbatches"], stats["steps"]) == (1, 8, 4)


def test_samples_that_were_replaced_are_counted():
    loader = make_loader(
        Broken(skewed_lengths(64)), dp_size=1, num_microbatches=1, on_sample_error="replace"
    )
    list(loader)
    assert loader.stats()["replaced"] == loader.stats()["repeats"] == 1


def test_each_step_is_logged_once_and_the_steps_add_up(tmp_path):
    log = StepLog(tmp_path / "logs" / "steps.csv")
    for rank in (1, 0):
        loader = make_loader(step_log=log, dp_rank=rank)
        for step in loader.steps():
            for _ in step:
                pass
            if step.number == 1:
                break
    state = loader.state_dict()
    resumed = make_loader(step_log=StepLog(tmp_path / "logs" / "steps.csv"))
    resumed.load_state_dict(state)
    list(resumed)
    with open(tmp_path / "logs" / "steps.csv", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["epoch"], row["step"], row["global_step"]) for row in rows] == [
        ("0", str(step), str(step)) for step in range(4)
    ]
    whole = make_loader()
    list(whole)
    for name in ("samples", "target_tokens", "microbatches", "steps"):
        assert sum(int(row[name]) for row in rows) == whole.stats()[name]
    log.close()
    resumed.step_log.close()


def test_each_rank_may_write_a_file_of_its_own(tmp_path):
    for rank in (0, 1):
        log = StepLog(tmp_path / "steps-{dp_rank}.csv")
        list(make_loader(step_log=log, dp_rank=rank))
        log.close()
    for rank in (0, 1):
        assert len((tmp_path / f"steps-{rank}.csv").read_text().splitlines()) == 1 + 4


def test_a_writer_of_tensorboard_gets_every_step():
    class Writer:
        def __init__(self):
            self.calls = []

        def add_scalar(self, tag, value, step):
            self.calls.append((tag, step))

    writer = Writer()
    loader = make_loader(step_log=TensorBoardLog(writer))
    loader.set_epoch(2)
    list(loader)
    steps = [step for tag, step in writer.calls if tag == "loader/imbalance_mean"]
    assert steps == [8, 9, 10, 11]


def test_case_m5_rank_0_says_once_what_the_plan_does(caplog):
    caplog.set_level(logging.INFO, logger="loaders")
    for rank in (1, 0):
        loader = make_loader(
            dp_rank=rank, max_tokens=600, max_microbatches=2, oversize="alone",
        )  # fmt: skip
        list(loader)
        list(loader)
        assert len(caplog.records) == (rank == 0)
    line = caplog.records[0].getMessage()
    plan = loader.batch_sampler.planner.plan(0, 0)
    ours = measure_plan(plan, loader.batch_sampler.planner.costs).microbatch_imbalance.mean
    assert "70 samples -> 4 steps of 2 microbatches on 2 ranks" in line
    assert f"imbalance {ours:.3f} (" in line
    assert ", tokens " in line
    assert "% full" in line
    assert "6 dropped, 0 alone" in line


def test_help_shows_the_arguments_of_the_loader():
    parameters = inspect.signature(BalancedDataLoader).parameters
    assert list(parameters)[:3] == ["dataset", "sizes", "cost_model"]
    assert "options" not in parameters
