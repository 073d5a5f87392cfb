"""Samples that cannot be read: named with all that is known, or others read in their place."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.plan import Flag
from loaders.collate import PackedCollator
from loaders.loader import BalancedDataLoader
from loaders.sample_errors import SampleReadError
from loaders.substitutes import Substitutes
from tests.loaders.planning import TextDataset, ids_of, skewed_lengths, text_tokens

NUM_SAMPLES = 64


class TwoArgumentsError(Exception):
    def __init__(self, file, place):
        super().__init__(f"{file} is broken at {place}")


class Broken(TextDataset):
    """Some samples cannot be read."""

    def __init__(self, broken, lengths=None):
        super().__init__(lengths or skewed_lengths(NUM_SAMPLES))
        self.broken = frozenset(broken)

    def __getitem__(self, index):
        if index in self.broken:
            raise TwoArgumentsError("image.png", index)
        return super().__getitem__(index)


class BrokenBatches(Broken):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def make_loader(dataset, **options):
    settings = {
        "cost_model": text_tokens, "global_batch_size": 16, "num_microbatches": 2,
        "dp_rank": 0, "dp_size": 2, "collate_fn": ids_of,
    }  # fmt: skip
    return BalancedDataLoader(dataset, **(settings | options))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_case_k6_an_error_names_sample_rank_step_and_original_traceback(num_workers):
    dataset = Broken([13])
    plan = make_loader(dataset).batch_sampler.planner.plan_epoch(0)
    cell = int(plan.cell_of_sample()[plan.sample_ids == 13][0])
    step, index, rank = cell // 4, cell // 2 % 2, cell % 2
    loader = make_loader(dataset, dp_rank=rank, num_workers=num_workers)
    with pytest.raises(SampleReadError) as caught:
        list(loader)
    message = str(caught.value)
    where = f"dp_rank {rank} of 2, epoch 0, step {step}, microbatch {index}: "
    assert "reading failed at sample 13" in message
    assert where in message
    assert "Original traceback" in message
    assert "in __getitem__" in message
    assert ("worker " in message) == (num_workers > 0)


def test_an_error_keeps_its_sample_ids_where_it_is_raised_and_when_pickled():
    with pytest.raises(SampleReadError) as caught:
        list(make_loader(Broken(range(64))))
    assert len(caught.value.sample_ids) == 1
    assert isinstance(caught.value.__cause__, TwoArgumentsError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.sample_ids) == (str(caught.value), caught.value.sample_ids)


def test_an_error_of_a_whole_microbatch_names_its_samples():
    with pytest.raises(SampleReadError, match=r"reading failed at one of samples \d+, \d+"):
        list(make_loader(BrokenBatches(range(64))))


def refuse(samples):
    raise TwoArgumentsError("batch", len(samples))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_in_the_collate_function_names_its_samples(num_workers):
    with pytest.raises(SampleReadError, match=r"collate_fn failed at samples \d+.* step 0"):
        list(make_loader(Broken([]), collate_fn=refuse, num_workers=num_workers))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("dataset_class", [Broken, BrokenBatches])
@pytest.mark.parametrize("policy", ["replace", "filler"])
def test_case_m4_broken_samples_change_no_number_of_microbatches(
    policy, dataset_class, num_workers
):
    """Both ranks run as planned; what failed and what was read instead is listed and flagged."""
    broken = [7, 20, 33]
    plan = make_loader(Broken([])).batch_sampler.planner.plan_epoch(0)
    failures = []
    for rank in (0, 1):
        loader = make_loader(
            dataset_class(broken), dp_rank=rank, on_sample_error=policy, num_workers=num_workers,
            collate_fn=PackedCollator(check_targets="error"),
        )  # fmt: skip
        read = []
        for batch in loader:
            read.append(batch["sample_ids"].tolist())
            flags = batch["sample_flags"].tolist()
            assert len(flags) == len(loader.facts.target_tokens)
            assert batch["num_target_tokens"] == sum(loader.facts.target_tokens)
            for failure in loader.facts.failures:
                flag = flags[read[-1].index(failure.substitute_id)]
                assert flag in (Flag.REPEAT if policy == "replace" else Flag.FILLER, Flag.REAL)
        planned = [ids.tolist() for ids in plan.for_rank(rank)]
        swap = {failure.sample_id: failure.substitute_id for failure in loader.failures}
        assert read == [[swap.get(index, index) for index in ids] for ids in planned]
        failures += loader.failures
    assert sorted(failure.sample_id for failure in failures) == broken
    assert all("TwoArgumentsError: image.png is broken" in failure.error for failure in failures)
    lengths = skewed_lengths(NUM_SAMPLES)
    for failure in failures:
        assert failure.substitute_id not in broken
        assert lengths[failure.substitute_id] <= lengths[failure.sample_id]


def test_a_failure_reads_alike_whoever_reads():
    """The exception cannot be rebuilt in another process; its type and message are told in full."""
    listed = []
    for readers in (
        {"num_workers": 0},
        {"num_workers": 1},
        {"num_workers": 1, "workers": "thread"},
        {"num_workers": 1, "workers": "process"},
    ):
        loader = make_loader(Broken([7, 20, 33]), dp_size=1, on_sample_error="replace", **readers)
        list(loader)
        listed.append(sorted((failure.sample_id, failure.error) for failure in loader.failures))
    name = f"{TwoArgumentsError.__module__}.TwoArgumentsError"
    assert listed[0] == [(n, f"{name}: image.png is broken at {n}") for n in (7, 20, 33)]
    assert listed == listed[:1] * 4


@pytest.mark.parametrize("policy", ["replace", "filler"])
def test_case_m4_what_a_substitute_counts(policy):
    """A replacement has its own targets, a filler none; the step's numbers stay the plan's."""
    plain, losses = [], []
    for broken in ([], [20]):
        for rank in (0, 1):
            loader = make_loader(
                Broken(broken), dp_rank=rank, on_sample_error=policy,
                collate_fn=PackedCollator(check_targets="error"),
            )  # fmt: skip
            batches = [(b["global_target_tokens"], b["num_target_tokens"]) for b in loader]
            (losses if broken else plain).extend(batches)
            for failure in loader.failures:
                lengths = skewed_lengths(NUM_SAMPLES)
                gain = lengths[failure.substitute_id] - lengths[failure.sample_id]
                lost = gain if policy == "replace" else 1 - lengths[failure.sample_id]
    assert [step for step, _ in plain] == [step for step, _ in losses]
    assert sum(n for _, n in losses) - sum(n for _, n in plain) == lost


@pytest.mark.parametrize("policy", ["replace", "filler"])
def test_failures_in_a_row_end_in_an_error_that_names_all(policy):
    loader = make_loader(Broken(range(NUM_SAMPLES)), on_sample_error=policy)
    with pytest.raises(SampleReadError, match=r"failed in a row, .* at samples? \d+") as caught:
        list(loader)
    assert 1 <= len(set(caught.value.sample_ids)) <= 4


def test_an_unknown_policy_is_refused():
    with pytest.raises(ArgumentError, match="on_sample_error is 'skip'"):
        make_loader(Broken([]), on_sample_error="skip")


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=60
    ),
    st.data(),
)
def test_substitutes_are_alike_no_larger_and_the_nearest(rows, data):
    """Same modules, no more of any amount, neither the sample itself nor one left out."""
    table = np.array(rows, float)
    costs = Costs.from_values(
        table[:, :2], modules=("vision", "language"), tokens=table[:, 1], images=table[:, 2]
    )
    left_out = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    ids = list(range(len(rows)))
    for index, found in zip(
        ids, Substitutes(costs, left_out=sorted(left_out)).of(ids), strict=True
    ):
        kind, total = table[index, :2] > 0, table[index, :2].sum()
        legal = [
            other
            for other in ids
            if other != index
            and other not in left_out
            and ((table[other, :2] > 0) == kind).all()
            and (table[other, 1:] <= table[index, 1:]).all()
        ]
        assert {each.sample_id for each in found} <= set(legal)
        assert all(each.target_tokens == table[each.sample_id, 1] for each in found)
        distances = [abs(table[each.sample_id, :2].sum() - total) for each in found]
        assert distances == sorted(distances)
        if len(rows) <= 16:
            best = sorted(abs(table[other, :2].sum() - total) for other in legal)
            assert distances == best[:3]
