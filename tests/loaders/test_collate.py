"""What collators promise: every field of tokens alike, samples apart, losses weighed rightly."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BatchFeature

from balancer.errors import ArgumentError, SampleError
from balancer.plan import Flag
from loaders.collate import PackedCollator, PaddedCollator
from tests.loaders.collating import samples_with_facts

token_lists = st.lists(
    st.lists(st.integers(min_value=0, max_value=2**40), min_size=1, max_size=12),
    min_size=1,
    max_size=8,
)


@given(token_lists)
def test_cu_seqlens_give_every_sample_back_from_the_packed_row(samples):
    """Slicing the row at cu_seqlens gives exactly the token lists that went in, in order."""
    batch = PackedCollator()([{"input_ids": ids} for ids in samples])
    bounds = batch["cu_seqlens"].tolist()
    row = batch["input_ids"][0].tolist()
    assert [row[a:b] for a, b in pairwise(bounds)] == samples
    starts = (batch["position_ids"][0] == 0).nonzero()[:, 0].tolist()
    assert starts == bounds[:-1]


@given(token_lists, st.integers(min_value=1, max_value=16))
def test_the_attention_mask_gives_every_sample_back_from_the_padded_rows(samples, multiple):
    """Where the mask is 1 stand exactly the token lists that went in; rows are a multiple long."""
    collator = PaddedCollator(pad_token_id=-7, pad_sample_to=multiple)
    batch = collator([{"input_ids": ids} for ids in samples])
    rows = zip(batch["input_ids"], batch["attention_mask"], strict=True)
    assert [ids[mask == 1].tolist() for ids, mask in rows] == samples
    assert batch["input_ids"].shape[1] % multiple == 0
    assert (batch["input_ids"][batch["attention_mask"] == 0] == -7).all()


@given(token_lists)
def test_packed_and_padded_count_the_same_target_tokens(samples):
    """One target token for every token but the first of a sample, in both layouts."""
    wrapped = [{"input_ids": ids} for ids in samples]
    counts = [
        collator(wrapped)["num_target_tokens"]
        for collator in (PackedCollator(), PaddedCollator(pad_token_id=0))
    ]
    assert counts == [sum(len(ids) - 1 for ids in samples)] * 2


def test_case_f3_every_field_of_tokens_has_the_same_length_after_padding():
    samples = [
        {"input_ids": [1, 2, 3], "labels": [1, 2, 3], "kind": [0, 1, 1]},
        {"input_ids": [4], "labels": [4], "kind": [2]},
    ]
    packed = PackedCollator(token_fields=["kind"])(samples)
    padded = PaddedCollator(pad_token_id=0, pad_sample_to=8, token_fields=["kind"])(samples)
    for name in ("input_ids", "position_ids", "labels", "kind"):
        assert packed[name].shape == (1, 4)
        assert padded[name].shape == (2, 8)
    assert padded["attention_mask"].shape == (2, 8)


def test_case_f4_positions_restart_in_every_sample():
    """Samples of 3 and 2 tokens: 0 1 2 0 1."""
    batch = PackedCollator()([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1]]


def three_axes(sample, num_tokens):
    """Time, row and column of each token, as multimodal rotary positions have them."""
    return torch.stack([torch.arange(num_tokens) * axis for axis in (1, 2, 3)])


def test_case_f4_positions_may_have_three_axes():
    samples = [{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}]
    packed = PackedCollator(positions=three_axes)(samples)
    assert packed["position_ids"].shape == (3, 1, 5)
    assert packed["position_ids"][2, 0].tolist() == [0, 3, 6, 0, 3]
    padded = PaddedCollator(positions=three_axes, pad_token_id=0)(samples)
    assert padded["position_ids"].shape == (3, 2, 3)
    assert padded["position_ids"][1].tolist() == [[0, 2, 4], [0, 2, 0]]


def test_case_f5_boundaries_reach_the_kernel_and_no_full_mask_hides_them():
    batch = PackedCollator()([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    assert batch["cu_seqlens"].dtype == torch.int32
    assert batch["cu_seqlens"].tolist() == [0, 3, 5]
    assert batch["max_seqlen"] == 3
    assert isinstance(batch["max_seqlen"], int)
    assert "attention_mask" not in batch


def test_case_a3_a_filler_has_every_key_of_a_real_microbatch_and_no_targets():
    samples = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3], "pixel_values": torch.ones(4, 6)}]
    for collator in (PackedCollator(), PaddedCollator(pad_token_id=0)):
        real = collator(samples_with_facts(samples, target_tokens=(2,)))
        filler = collator(
            samples_with_facts(samples, flags=(Flag.FILLER,), target_tokens=(0,), dp_rank=0)
        )
        assert real.keys() == filler.keys()
        for name, value in real.items():
            if isinstance(value, torch.Tensor):
                assert (value.dtype, value.shape) == (filler[name].dtype, filler[name].shape)
        assert (filler["labels"] == -100).all()
        assert (filler["num_target_tokens"], filler["is_filler"]) == (0, True)
        assert (real["num_target_tokens"], real["is_filler"]) == (2, False)


def test_case_i3_sums_over_the_steps_target_tokens_make_the_mean_of_all_tokens():
    """11 and 101 tokens: by a mean of means, a token of the short one weighs 10 times another."""
    losses = torch.rand(112, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parts = losses.split([11, 101])
    step = {"step_target_tokens": 110, "dp_size": 2}
    total = 0.0
    for rank, part in enumerate(parts):
        samples = samples_with_facts(
            [{"input_ids": range(len(part))}], target_tokens=(len(part) - 1,), dp_rank=rank, **step
        )
        batch = PackedCollator(check_targets="error")(samples)
        assert batch["global_target_tokens"] == 110
        total += float(part[batch["labels"][0] != -100].sum() * batch["loss_scale"]) / 2
    kept = torch.cat([part[1:] for part in parts])
    assert total == pytest.approx(float(kept.mean()), abs=1e-12)


def test_a_step_without_targets_has_a_finite_loss():
    samples = samples_with_facts([{"input_ids": [1]}], target_tokens=(0,))
    assert PackedCollator()(samples)["loss_scale"] == 1.0


def test_facts_say_which_samples_are_repeats():
    samples = samples_with_facts(
        [{"input_ids": [1, 2]}, {"input_ids": [3, 4]}],
        flags=(Flag.REAL, Flag.REPEAT),
        target_tokens=(1, 1),
    )
    batch = PackedCollator()(samples)
    assert batch["sample_ids"].tolist() == [100, 101]
    assert batch["sample_flags"].tolist() == [Flag.REAL, Flag.REPEAT]
    assert batch["num_target_tokens"] == 2
    assert not batch["is_filler"]


def test_without_facts_there_is_no_normaliser_to_mistake_for_the_steps():
    batch = PackedCollator()([{"input_ids": [1, 2]}])
    assert not {"loss_scale", "global_target_tokens", "sample_ids"} & batch.keys()


@dataclass
class Sample:
    input_ids: np.ndarray


@pytest.mark.parametrize(
    "sample",
    [
        Sample(np.array([4, 5])),
        BatchFeature({"input_ids": torch.tensor([[4, 5]])}),
        {"input_ids": (4, 5)},
    ],
    ids=["dataclass", "BatchFeature", "dict"],
)
def test_case_f7_samples_may_be_mappings_or_objects(sample):
    assert PackedCollator()([sample])["input_ids"].tolist() == [[4, 5]]


def test_read_only_arrays_are_taken_without_a_warning():
    ids = np.array([1, 2])
    ids.flags.writeable = False
    assert PackedCollator()([{"input_ids": ids}])["labels"].tolist() == [[-100, 2]]


def test_the_samples_are_not_changed():
    sample = {"input_ids": torch.tensor([1, 2]), "labels": torch.tensor([1, 2])}
    PackedCollator()([sample])
    assert sample["labels"].tolist() == [1, 2]


def test_media_placeholders_made_into_labels_have_no_loss():
    batch = PackedCollator(unsupervised_ids=[9])([{"input_ids": [1, 9, 9, 3]}])
    assert batch["labels"].tolist() == [[-100, -100, -100, 3]]


def test_media_are_joined_in_the_order_of_the_samples():
    samples = [
        {"input_ids": [1], "pixel_values": torch.zeros(4, 6), "image_grid_thw": [[1, 2, 2]]},
        {"input_ids": [2]},
        {"input_ids": [3], "pixel_values": np.ones((8, 6)), "image_grid_thw": [[1, 2, 4]]},
    ]
    batch = PackedCollator()(samples)
    assert batch["pixel_values"].shape == (12, 6)
    assert batch["pixel_values"][:, 0].tolist() == [0] * 4 + [1] * 8
    assert batch["image_grid_thw"].tolist() == [[1, 2, 2], [1, 2, 4]]
    assert "pixel_values" not in PackedCollator()([{"input_ids": [1]}])


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({}, "sample 100 has no input_ids"),
        ({"input_ids": []}, "input_ids of sample 100 has shape"),
        ({"input_ids": [1, 2], "labels": [1]}, "labels of sample 100 has 1 entries"),
        ({"input_ids": [1, 2], "kind": [1]}, "kind of sample 100 has 1 entries"),
    ],
)
def test_a_sample_at_fault_is_named(sample, message):
    samples = samples_with_facts([sample], target_tokens=(1,))
    with pytest.raises(SampleError, match=message) as raised:
        PackedCollator(token_fields=["kind"])(samples)
    assert raised.value.sample_ids == (100,)


def test_a_builder_of_too_few_positions_is_refused():
    with pytest.raises(SampleError, match="positions of sample 0 are 1"):
        PackedCollator(positions=lambda sample, tokens: torch.arange(1))([{"input_ids": [1, 2]}])


def test_an_empty_microbatch_is_refused():
    with pytest.raises(SampleError, match="samples is empty"):
        PackedCollator()([])


def test_a_size_table_that_miscounts_targets_is_reported_once():
    samples = samples_with_facts([{"input_ids": [1, 2, 3]}], target_tokens=(3,))
    message = "target_tokens of sample 100 is 3 in the size table, but 2 of its labels"
    with pytest.raises(SampleError, match=message):
        PackedCollator(check_targets="error")(samples)
    collator = PackedCollator()
    with pytest.warns(UserWarning, match=message):
        collator(samples)
    collator(samples)
    PackedCollator(check_targets="off")(samples)


def test_bad_options_are_refused_by_name():
    with pytest.raises(ArgumentError, match="check_targets is 'maybe'"):
        PackedCollator(check_targets="maybe")
    with pytest.raises(ArgumentError, match="pad_sample_to is 0"):
        PaddedCollator(pad_token_id=0, pad_sample_to=0)
