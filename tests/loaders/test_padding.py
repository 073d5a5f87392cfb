"""Collators that pad: to multiples, and to one shape for all microbatches of a step."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import ArgumentError, SampleError
from balancer.planner import EpochPlanner
from balancer.topology import Limits, Topology
from loaders.collate import PackedCollator, PaddedCollator
from loaders.loader import BalancedDataLoader
from loaders.microbatch import SampleList
from loaders.sampler import BalancedBatchSampler
from loaders.uniform import padding_fraction
from tests.loaders.collating import samples_with_facts
from tests.loaders.planning import TextDataset, skewed_lengths, text_tokens

IMAGE = 9
token_lists = st.lists(
    st.lists(st.sampled_from([1, 2, IMAGE]), min_size=1, max_size=12), min_size=1, max_size=8
)


def wrap(token_lists):
    return [{"input_ids": ids, "kind": ids} for ids in token_lists]


def test_case_e5_samples_of_a_context_parallel_group_are_padded_one_by_one():
    lists = [[1] * n for n in (4, 8, 6, 10)]
    batch = PackedCollator(pad_sample_to=4, pad_token_id=7)(wrap(lists))
    assert batch["cu_seqlens"].tolist() == [0, 4, 12, 18, 28]
    assert batch["cu_seqlens_padded"].tolist() == [0, 4, 12, 20, 32]
    assert batch["cu_seqlens_padded"].dtype == torch.int32
    assert batch["input_ids"].shape == (1, 32)
    assert (batch["max_seqlen"], batch["max_seqlen_padded"]) == (10, 12)
    assert batch["input_ids"][0, 18:20].tolist() == [7, 7]
    assert batch["labels"][0, 18:20].tolist() == [-100, -100]


def test_a_row_is_padded_behind_its_last_sample():
    batch = PackedCollator(pad_sample_to=2, pad_microbatch_to=16)(wrap([[1] * 3, [1] * 2]))
    assert batch["cu_seqlens_padded"].tolist() == [0, 4, 16]
    assert batch["sequence_ids"].tolist() == [[0, 0, 0, -1, 1, 1, *[-1] * 10]]


@given(token_lists, st.sampled_from([1, 2, 6]), st.sampled_from([1, 4]))
def test_case_f2_and_f5_padding_cuts_nothing_and_brings_no_full_mask(lists, sample_to, times):
    """Every sample stands whole at its place of the padded row, media placeholders with it."""
    collator = PackedCollator(
        pad_sample_to=sample_to, pad_microbatch_to=sample_to * times, token_fields=["kind"],
        debug=True,
    )  # fmt: skip
    batch = collator(wrap(lists))
    starts = batch.get("cu_seqlens_padded", batch["cu_seqlens"]).tolist()
    rows = [batch["input_ids"][0, a : a + len(ids)].tolist() for a, ids in zip(starts, lists)]  # noqa: B905
    assert rows == lists
    assert int((batch["input_ids"] == IMAGE).sum()) == sum(ids.count(IMAGE) for ids in lists)
    assert all(start % sample_to == 0 for start in starts)
    assert batch["input_ids"].shape[1] % (sample_to * times) == 0
    assert "attention_mask" not in batch


@given(token_lists, st.sampled_from([1, 8, 16]), st.booleans())
def test_case_f3_all_fields_of_tokens_are_as_wide_as_input_ids(lists, multiple, packed):
    """Whatever the multiple and layout, each per-token field has input_ids' shape."""
    options = {"pad_sample_to": multiple, "token_fields": ["kind"], "debug": True}
    collator = PackedCollator(**options) if packed else PaddedCollator(pad_token_id=0, **options)
    batch = collator(wrap(lists))
    for name in ("position_ids", "labels", "sequence_ids", "kind"):
        assert batch[name].shape == batch["input_ids"].shape
    assert batch["input_ids"].numel() % multiple == 0
    places = [batch["input_ids"][batch["sequence_ids"] == place] for place in range(len(lists))]
    assert [row.tolist() for row in places] == lists


def test_case_f3_debug_names_the_field_that_is_too_short():
    class Wrong(PackedCollator):
        def _fill(self, name):
            return 0

        def _check_lengths(self, batch, names, width):
            batch["position_ids"] = batch["position_ids"][..., :-1]
            super()._check_lengths(batch, names, width)

    with pytest.raises(SampleError, match="position_ids has 1 entries a row, input_ids has 2"):
        Wrong(debug=True)(wrap([[1, 2]]))
    Wrong()(wrap([[1, 2]]))


def all_microbatches(collator, limits):
    lengths = skewed_lengths(96)
    costs = Costs.from_values(lengths, tokens=lengths, target_tokens=[n - 1 for n in lengths])
    topology = Topology(dp_size=2, num_microbatches=4, limits=limits)
    planner = EpochPlanner(costs, topology, global_batch_size=32)
    by_step = [[] for _ in range(planner.num_steps)]
    for ids in BalancedBatchSampler(planner):
        samples = wrap([[index] * lengths[index] for index in ids])
        by_step[ids.facts.step].append(collator(SampleList(samples, ids.facts)))
    return by_step, planner, costs


COLLATORS = {
    "packed": PackedCollator(uniform_shape=True, check_targets="error"),
    "multiples": PackedCollator(uniform_shape=True, pad_sample_to=8, pad_microbatch_to=16),
    "padded": PaddedCollator(pad_token_id=0, uniform_shape=True, pad_sample_to=8),
}


@pytest.mark.parametrize("name", COLLATORS)
def test_case_e4_the_microbatches_of_a_step_have_one_shape(name):
    """All ranks and slots of a step; what it costs in padding is what was foretold."""
    collator = COLLATORS[name]
    limits = Limits(
        layout=collator.layout,
        pad_sample_to=collator.pad_sample_to,
        pad_microbatch_to=getattr(collator, "pad_microbatch_to", 1),
    )
    by_step, planner, costs = all_microbatches(collator, limits)
    for batches in by_step:
        assert len(batches) == 8
        for field in ("input_ids", "labels", "position_ids"):
            assert len({batch[field].shape for batch in batches}) == 1
    batches = [batch for batches in by_step for batch in batches]
    real = sum(int((batch["sequence_ids"] >= 0).sum()) for batch in batches)
    allocated = sum(batch["input_ids"].numel() for batch in batches)
    foretold = padding_fraction(planner.plan_epoch(0), costs, uniform_shape=True)
    assert 1 - real / allocated == pytest.approx(foretold)
    assert foretold > padding_fraction(planner.plan_epoch(0), costs)


def test_rows_of_padding_have_something_to_attend_to():
    samples = samples_with_facts(wrap([[1, 2]]), target_tokens=(1,), step_shape=(3, 4))
    batch = PaddedCollator(pad_token_id=5, uniform_shape=True)(samples)
    assert batch["input_ids"].tolist() == [[1, 2, 5, 5], [5] * 4, [5] * 4]
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert (batch["sequence_ids"][1:] == -1).all()
    assert (batch["labels"][1:] == -100).all()


def test_a_microbatch_beyond_the_plans_shape_is_refused_with_its_samples():
    samples = samples_with_facts(wrap([[1] * 5, [1]]), target_tokens=(4, 0), step_shape=(1, 5))
    with pytest.raises(
        SampleError, match=r"samples 100, 101 make 6 tokens, .* step has 5"
    ) as error:
        PackedCollator(uniform_shape=True)(samples)
    assert error.value.sample_ids == (100, 101)
    with pytest.raises(SampleError, match=r"make 2 rows, .* step has 1"):
        PaddedCollator(pad_token_id=0, uniform_shape=True)(samples)


def test_the_plan_counts_the_padding_that_the_collator_adds():
    def loader(**options):
        return BalancedDataLoader(
            TextDataset([5] * 64), cost_model=text_tokens, global_batch_size=16, dp_rank=0,
            dp_size=2, collate_fn=PackedCollator(pad_sample_to=8, pad_microbatch_to=16), **options,
        )  # fmt: skip

    limits = loader(max_tokens=64).batch_sampler.planner.topology.limits
    assert (limits.pad_sample_to, limits.pad_microbatch_to) == (8, 16)
    with pytest.raises(ArgumentError, match="pad_sample_to is 8 in collate_fn, 1 in limits"):
        loader(limits=Limits(max_tokens=64))


def test_bad_options_are_refused_by_name():
    with pytest.raises(ArgumentError, match="pad_microbatch_to is 16, pad_sample_to is 6"):
        PackedCollator(pad_sample_to=6, pad_microbatch_to=16)
    with pytest.raises(ArgumentError, match="pad_sample_to is 0"):
        PackedCollator(pad_sample_to=0)
    with pytest.raises(ArgumentError, match=r"uniform_shape is True, but .* without the facts"):
        PackedCollator(uniform_shape=True)(wrap([[1]]))
