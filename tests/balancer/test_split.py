"""recommend_split: no neighbour is faster, stable sizes follow their definition, clear errors."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.cli.main import main
from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.limits import Limits
from balancer.split import SplitLayout, recommend_split, required_draws
from balancer.split_times import split_time


def costs_of(seed, size=64, ratio=1.0, sigma=0.7):
    values = np.random.default_rng(seed).lognormal(sigma=sigma, size=(size, 2))
    values[:, 0] *= ratio
    return Costs.from_values(values, modules=("vision", "language"))


@settings(max_examples=15)
@given(st.integers(0, 999), st.sampled_from([0.2, 1.0, 4.0]), st.sampled_from([4, 6]))
def test_no_split_next_to_the_recommended_one_is_faster(seed, ratio, num_gpus):
    """All neighbours are planned too; beside every split of the layout ours is a local best."""
    layout = SplitLayout(dp_size=1, num_microbatches=4)
    costs = costs_of(seed, ratio=ratio)
    found = recommend_split(costs, num_gpus=num_gpus, layouts=[layout], global_batch_size=16)
    times = {split.encoder_stages: split.step_time for split in found.splits}
    at = found.best.encoder_stages
    for near in (at - 1, at + 1):
        if 0 < near < num_gpus:
            assert times[near] >= times[at]
    assert found.proportional[0] in times
    assert found.best.step_time == min(times.values())
    assert found.best.step_time >= found.best.lower_bound * (1 - 1e-9)


def test_the_recommended_split_is_the_best_of_all_by_brute_force():
    """Steps of like samples: every split is tried by hand, with its own work alone deciding."""
    costs = Costs.from_values([[1.0, 5.0]] * 48, modules=("vision", "language"))
    layout = SplitLayout(dp_size=1, num_microbatches=12)
    found = recommend_split(costs, num_gpus=6, layouts=[layout], global_batch_size=48)
    slowest = {stages: max(1.0 / stages, 5.0 / (6 - stages)) for stages in range(1, 6)}
    assert found.best.encoder_stages == min(slowest, key=slowest.get) == 1
    assert (found.best.encoder_gpus, found.best.language_gpus) == (1, 5)


@pytest.mark.parametrize(("seed", "ratio"), [(0, 0.3), (1, 1.0), (2, 2.5), (3, 6.0)])
def test_no_split_at_all_is_faster_where_samples_differ(seed, ratio):
    """Every split of a step of all samples is planned by itself: none beats the recommended one."""
    costs, layout = costs_of(seed, size=16, ratio=ratio), SplitLayout(dp_size=1, num_microbatches=4)
    found = recommend_split(
        costs, num_gpus=5, layouts=[layout], global_batch_size=16, num_steps=1
    )  # fmt: skip
    every = [
        split_time(
            [costs], layout, stages, num_stages=5, language="language", limits=Limits(),
            schedule="1f1b",
        )
        for stages in range(1, 5)
    ]  # fmt: skip
    assert found.best.step_time == pytest.approx(min(each.step_time for each in every))


def test_the_layout_that_is_faster_wins():
    """Of two layouts on the same steps the recommendation is from the faster one."""
    layouts = [SplitLayout(dp_size=1, num_microbatches=8), SplitLayout(dp_size=4)]
    found = recommend_split(costs_of(1), num_gpus=8, layouts=layouts, global_batch_size=32)
    best = {layout: min(s.step_time for s in found.splits if s.layout == layout)
            for layout in layouts}  # fmt: skip
    assert found.best.step_time == min(best.values())
    assert set(best) == {split.layout for split in found.splits}
    assert all(s.encoder_gpus + s.language_gpus == 8 for s in found.splits)


def test_gpus_of_a_stage_make_it_as_many_times_faster():
    """Two GPUs a stage on twice the GPUs: the same stages in half the time."""
    costs = costs_of(3)
    one, two = (
        recommend_split(
            costs, num_gpus=4 * gpus, global_batch_size=16,
            layouts=[SplitLayout(dp_size=1, gpus_per_stage=gpus)],
        )
        for gpus in (1, 2)
    )  # fmt: skip
    assert two.best.step_time == one.best.step_time / 2
    assert two.best.encoder_gpus == 2 * one.best.encoder_gpus


def test_draws_are_those_of_the_formula():
    """Draws k = ceil(ln alpha / ln (1 - p)): k - 1 agreeing draws would not be enough."""
    for alpha, error in ((0.05, 0.05), (0.01, 0.1), (0.5, 0.5)):
        k = required_draws(alpha=alpha, error=error)
        assert (1 - error) ** k <= alpha < (1 - error) ** (k - 1)
    assert required_draws() == 59


def test_batches_are_stable_where_all_draws_agree():
    """Samples that vary need larger batches than those that do not; on an edge none do."""
    layout = SplitLayout(dp_size=1, num_microbatches=2)

    def stable(costs):
        return recommend_split(
            costs, num_gpus=8, layouts=[layout], global_batch_size=8
        ).stable_batch_size[0]  # fmt: skip

    alike = Costs.from_values([[1.0, 3.0]] * 512, modules=("vision", "language"))
    assert stable(alike) == 2
    varied = costs_of(0, size=4096, ratio=1.0, sigma=1.0)
    assert 32 < stable(varied) <= 4096
    half = Costs.from_values([[7.5, 8.5], [8.5, 7.5]] * 64, modules=("vision", "language"))
    assert stable(half) == 2  # between 3.5 and 4.5 of 8 stages, whatever is drawn
    edge = Costs.from_values([[6.0, 10.0], [8.0, 8.0]] * 64, modules=("vision", "language"))
    assert stable(edge) is None  # 3.5 of 8 stages on average


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_gpus": 6, "layouts": [SplitLayout(dp_size=4)]}, "num_gpus is 6; layout dp4_m4 has"),
        ({"num_gpus": 4, "layouts": [SplitLayout(dp_size=4)]}, "at least 8"),
        ({"layouts": []}, "layouts is empty"),
        ({"language": "text"}, "language is 'text'; costs have 64 samples and the modules"),
        ({"alpha": 0.0}, "alpha is 0.0; allowed: numbers between 0 and 1"),
        ({"error": 1.0}, "error is 1.0; allowed: numbers between 0 and 1"),
        ({"global_batch_size": 3}, "global_batch_size is 3; allowed: whole numbers >= 4"),
        ({"num_steps": 0}, "num_steps is 0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options, message):
    """Each error says what was given and what is allowed."""
    with pytest.raises(ArgumentError, match=message):
        recommend_split(
            costs_of(0), **({"num_gpus": 4, "layouts": [SplitLayout(dp_size=1)]} | options)
        )


def test_the_command_prints_a_table_and_json(capsys):
    """`balancer split` says the split, every neighbour, and the batch size."""
    command = ["split", "embedded", "--model", "qwen2.5-vl-7b", "--gpus", "4", "--layout", "1x4",
               "--global-batch-size", "16", "--steps", "1"]  # fmt: skip
    assert main(command) == 0
    out = capsys.readouterr().out
    for words in ("GPUs for the encoders", "<- recommended", "over best", "in 59 draws"):
        assert words in out
    assert main([*command, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["best"] in record["splits"]
    assert record["num_draws"] == 59
    assert main([*command[:5], "3", *command[6:], "--layout", "2x4"]) == 2
    assert "balancer split: --gpus is 3; layout dp2_m4 has" in capsys.readouterr().err
    assert main([*command[:7], "4", *command[8:]]) == 2
    assert "balancer split: --layout is '4'; allowed: DPxM" in capsys.readouterr().err
