"""Costs priced a step at a time are those of the whole table, in every plan, bound and message."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balancer.cost_survey as cost_survey
from balancer.cost import Costs, evaluate_costs
from balancer.errors import ArgumentError, CapacityError, PlanError, SampleError
from balancer.flops.presets import preset
from balancer.planner import EpochPlanner
from balancer.report import balance_report
from balancer.samples import SampleTable
from balancer.sizing.key import identity
from balancer.sizing.tables import load_table, save_table
from balancer.table_costs import TableCosts
from balancer.topology import Limits, Topology


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(cost_survey, "_BLOCK", 7)  # so that a few samples are several blocks


def _table(seed, size):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 3, size)
    pixels = rng.integers(28, 500, images.sum())
    offsets = np.concatenate([[0], np.cumsum(images)])
    return SampleTable.from_arrays(
        text_tokens=rng.integers(1, 400, size),
        image_heights=(pixels, offsets),
        image_widths=(pixels, offsets),
    )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 60),
    max_tokens=st.none() | st.integers(150, 900),
    pad=st.sampled_from([1, 8]),
    dp_size=st.integers(1, 3),
    barrier=st.sampled_from(["step", "microbatch"]),
    oversize=st.sampled_from(["drop", "alone"]),
    tail=st.sampled_from(["pad", "filler"]),
    window_steps=st.integers(1, 2),
)
def test_plans_are_those_of_costs_in_memory(
    seed, size, max_tokens, pad, dp_size, barrier, oversize, tail, window_steps
):
    """The same plans, certificates, dropped ids, reports and fingerprints, bit for bit."""
    table, model = _table(seed, size), preset("qwen2.5-vl-3b")
    limits = Limits(max_tokens=max_tokens, pad_sample_to=pad)
    topology = Topology(dp_size=dp_size, barrier=barrier, limits=limits)

    def planned(costs):
        planner = EpochPlanner(
            costs, topology, global_batch_size=3 * dp_size, oversize=oversize, tail=tail,
            window_steps=window_steps,
        )  # fmt: skip
        plan = planner.plan_epoch(1)
        plan.check(costs, expected_ids=np.arange(size))
        return planner.fingerprint, plan.fingerprint, plan.certificates, plan.dropped.tolist(), plan

    whole, costs = model(table), TableCosts(table, model, progress=False)
    if oversize == "drop" and whole.over("tokens", (max_tokens or 10**6) // pad * pad).size == size:
        for refused in (whole, costs):
            with pytest.raises(PlanError, match="all are over a limit"):
                planned(refused)
        return
    *expected, plan = planned(whole)
    *found, _ = planned(costs)
    assert found == expected
    assert balance_report(plan, costs) == balance_report(plan, whole)


def test_questions_about_all_samples_have_the_answers_of_costs_in_memory():
    """Largest amounts, samples over a limit, clipped and rounded sums, fingerprint."""
    table, model = _table(5, 50), preset("qwen2.5-vl-3b")
    ours, whole = TableCosts(table, model, progress=False), model(table)
    assert (ours.modules, ours.unit, len(ours)) == (whole.modules, whole.unit, len(whole))
    assert ours.fingerprint == whole.fingerprint
    for amount in ("tokens", "patches", "images"):
        assert ours.largest(amount) == whole.largest(amount)
        for limit in (1, 200, whole.largest(amount), 10**6):
            assert ours.over(amount, limit).tolist() == whole.over(amount, limit).tolist()
            for multiple in (1, 16):
                expected = sum(
                    min(-(-int(v) // multiple) * multiple, limit) for v in getattr(whole, amount)
                )
                assert ours.clipped_sum(amount, limit, multiple) == expected
                assert whole.clipped_sum(amount, limit, multiple) == expected


def test_a_mapped_table_plans_as_one_in_memory(tmp_path):
    """Sizes read from disk page by page give the same costs."""
    table = _table(8, 40)
    save_table(table, tmp_path / "sizes.arrow")
    mapped = TableCosts(load_table(tmp_path / "sizes.arrow"), preset("text-7b"), progress=False)
    assert mapped.fingerprint == preset("text-7b")(table).fingerprint


def test_with_a_cache_nothing_is_priced_twice(tmp_path):
    """A second object with the same sizes and model reads what the first found."""
    table, calls = _table(3, 30), []

    class Counting:
        def __call__(self, table):
            calls.append(len(table))
            return table.text_tokens

        def __reduce__(self):
            return Counting, ()

    def ask():
        costs = TableCosts(table, Counting(), cache=tmp_path, progress=False)
        return costs.fingerprint, costs.over("tokens", 100).tolist()

    first = ask()
    assert calls
    calls.clear()
    assert ask() == first
    assert not calls
    for entry in tmp_path.iterdir():
        entry.write_bytes(entry.read_bytes()[:20])
    with pytest.warns(UserWarning, match="is damaged"):
        assert ask() == first
    assert calls


def test_illegal_samples_have_their_ids_in_the_table():
    """What the model cannot take is refused by its own id, whatever block it stands in."""
    table = SampleTable.from_arrays(
        text_tokens=[5] * 20, audio_seconds=[[]] * 11 + [[3.0]] + [[]] * 8
    )
    costs = TableCosts(table, preset("text-7b"), progress=False)
    assert costs.illegal.tolist() == preset("text-7b")(table).illegal.tolist() == [11]
    with pytest.raises(SampleError, match="11") as caught:
        EpochPlanner(costs, Topology(dp_size=2), global_batch_size=4)
    assert caught.value.sample_ids == (11,)
    planner = EpochPlanner(costs, Topology(dp_size=2), global_batch_size=4, illegal="drop")
    assert 11 not in planner.plan_epoch(0).sample_ids


def test_a_cost_that_is_not_a_number_is_refused_with_its_id():
    """Also where it stands in a later block."""
    table = SampleTable.from_lengths(range(1, 21))
    with pytest.raises(SampleError) as caught:
        TableCosts(table, lambda t: np.where(t.text_tokens == 17, np.nan, 1.0), progress=False)
    assert caught.value.sample_ids == (16,)


def test_oversize_message_is_that_of_costs_in_memory():
    """Id, size and cure do not depend on where the costs come from."""
    table, model = SampleTable.from_lengths(range(5, 95, 3)), preset("text-7b")
    topology = Topology(dp_size=2, limits=Limits(max_tokens=50))
    messages = []
    for costs in (model(table), TableCosts(table, model, progress=False)):
        with pytest.raises(CapacityError) as caught:
            EpochPlanner(costs, topology, global_batch_size=4)
        messages.append((str(caught.value), caught.value.sample_ids))
    assert messages[0] == messages[1]


def test_a_model_that_scales_by_other_samples_is_refused():
    """Prices that depend on which samples are priced together would differ from step to step."""
    table = SampleTable.from_lengths(range(1, 21))
    with pytest.raises(ArgumentError, match="price each sample by itself"):
        TableCosts(table, lambda t: t.text_tokens / t.text_tokens.max(), progress=False)


def test_select_prices_the_given_rows_in_their_order():
    """Rows may repeat."""
    table, model = _table(1, 25), preset("qwen2.5-vl-3b")
    rows = np.array([24, 3, 3, 0])
    ours = TableCosts(table, model, progress=False).select(rows)
    assert isinstance(ours, Costs)
    assert ours.fingerprint == evaluate_costs(model, table).select(rows).fingerprint


def test_another_process_knows_the_model_by_the_same_key():
    """Compiled functions that a token rule calls do not make its key another one every time."""
    script = (
        "from balancer.flops.presets import preset\n"
        "from balancer.sizing.key import identity\n"
        "print(identity(preset('qwen2.5-vl-7b')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.strip() == identity(preset("qwen2.5-vl-7b"))
