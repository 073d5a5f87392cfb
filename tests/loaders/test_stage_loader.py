"""BalancedDataLoader with stages of its own in place of torch's workers."""

import gc
import threading
import warnings
import weakref

import numpy as np
import pytest
import torch

from balancer.errors import ArgumentError
from balancer.plan import Flag
from balancer.samples import SampleTable
from loaders import BalancedDataLoader, PackedCollator
from loaders.seeding import sample_generator
from loaders.stages import Stage, StageError

LENGTHS = [3 + (7 * index) % 11 for index in range(48)]


class Texts:
    """Samples of known lengths; some cannot be read."""

    def __init__(self, broken=()):
        self.broken = frozenset(broken)

    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, sample_id):
        if sample_id in self.broken:
            raise OSError(f"no sample {sample_id}")
        noise = sample_generator().integers(0, 1 << 30)
        ids = torch.arange(LENGTHS[sample_id]) + 100 * sample_id
        return {"input_ids": ids, "noise": torch.full((LENGTHS[sample_id],), int(noise))}


def loader(dataset=None, **options):
    return BalancedDataLoader(
        dataset or Texts(),
        sizes=SampleTable.from_lengths(LENGTHS),
        cost_model=lambda table: table.text_tokens,
        **{
            "global_batch_size": 16,
            "num_microbatches": 2,
            "dp_rank": 0,
            "dp_size": 2,
            "effort": "fast",
            "num_workers": 2,
            "collate_fn": PackedCollator(token_fields=["noise"], check_targets="off"),
            **options,
        },
    )


def same(left, right):
    assert len(left) == len(right) > 0
    for a, b in zip(left, right, strict=True):
        assert a.keys() == b.keys()
        for name, value in a.items():
            equal = torch.equal(value, b[name]) if torch.is_tensor(value) else value == b[name]
            assert equal, name


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "options",
    [
        {"workers": "thread"},
        {"workers": "thread", "num_workers": 1, "look_ahead": 1},
        {"workers": "thread", "num_workers": 1, "autoscale": True},
        {"workers": "process"},
        {"workers": "process", "multiprocessing_context": "fork", "persistent_workers": True},
        {"workers": "process", "multiprocessing_context": "spawn", "num_workers": 1},
        {"workers": "auto"},
    ],
    ids=str,
)
def test_microbatches_are_bit_equal_whoever_reads(options):
    """Two epochs in any kind and number of workers: those of one process, draws included."""
    expected = loader(num_workers=0)
    ours = loader(**options)
    for _ in range(2):
        same(list(ours), list(expected))


def test_the_state_counts_what_was_handed_out_whatever_was_read_ahead():
    """After a break the state is that of a loader that reads nothing ahead, and resumes alike."""
    ours, plain = loader(workers="thread"), loader(num_workers=0)
    for each in (ours, plain):
        for number, _ in enumerate(each):
            if number == 2:
                break
    assert ours.state_dict() == plain.state_dict()
    resumed = loader(workers="thread")
    resumed.load_state_dict(ours.state_dict())
    rest = list(resumed)
    same(rest, list(loader(num_workers=0))[3:])


def test_breaking_off_and_errors_leave_no_thread():
    """Whatever ends the iteration, its workers end with it."""
    before = set(threading.enumerate())
    for _ in loader(workers="thread"):
        break
    with pytest.raises(StageError, match=r"stage 'read' failed on sample 5 .*no sample 5"):
        list(loader(Texts(broken=[5]), workers="thread"))
    assert set(threading.enumerate()) <= before


def test_microbatches_are_freed_while_the_loader_goes_on():
    """Without any collection of garbage, only the microbatch in the consumer's hands is alive."""
    made = []
    ours = loader(workers="thread")
    gc.collect()
    gc.disable()
    try:
        for batch in ours:
            made.append(weakref.ref(batch["input_ids"]))
            del batch
            assert sum(ref() is not None for ref in made) <= 1
    finally:
        gc.enable()
    assert len(made) == 6


@pytest.mark.parametrize("policy", ["replace", "filler"])
def test_case_m4_another_sample_is_read_flagged_and_listed(policy):
    """A sample that fails in a stage has the same stand-in as with torch's workers."""
    broken = [5, 17, 40]
    ours = loader(Texts(broken), workers="thread", on_sample_error=policy, oversize="error")
    plain = loader(Texts(broken), num_workers=0, on_sample_error=policy)
    batches = list(ours)
    same(batches, list(plain))
    listed = [(failure.sample_id, failure.substitute_id) for failure in ours.failures]
    assert sorted(listed) == sorted((f.sample_id, f.substitute_id) for f in plain.failures)
    flags = np.concatenate([batch["sample_flags"].numpy() for batch in batches])
    assert (flags == (Flag.REPEAT if policy == "replace" else Flag.FILLER)).sum() == len(listed)


def test_stages_of_the_user_take_the_place_of_the_dataset():
    """Declared stages run in order, `collate_fn` after them, with statistics of each."""
    texts = Texts()
    row = [
        Stage(name="read", work=texts.__getitem__, workers=2, threads=0),
        Stage(name="double", work=lambda s: {**s, "input_ids": 2 * s["input_ids"]}, threads=0),
    ]
    ours = loader(texts, workers="thread", stages=row, collate_fn=lambda samples: samples)
    seen = [sample["input_ids"] for batch in ours for sample in batch]
    assert all(int(ids[0]) % 200 == 0 for ids in seen)
    assert [stage.name for stage in ours.pipeline.stats()] == [
        "planning", "read", "double", "collate",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"look_ahead": 4}, "look_ahead is 4, workers is 'torch'"),
        ({"stages": [Stage(name="read", work=int)]}, "stages is .*, workers is 'torch'"),
        ({"workers": "thread", "prefetch_factor": 2}, "prefetch_factor is 2, workers is 'thread'"),
        ({"workers": "thread", "worker_init_fn": print}, "worker_init_fn is .* workers='torch'"),
        ({"workers": "gpu"}, "workers is 'gpu'"),
        ({"workers": "thread", "order": "late"}, "order is 'late'"),
    ],
)
def test_options_that_do_not_go_together_are_refused_by_both_names(options, message):
    with pytest.raises(ArgumentError, match=message):
        list(loader(**options))


def test_delivery_by_readiness_warns_where_ranks_wait_for_each_other_in_every_microbatch():
    """The default barrier is warned of; one wait a step, one rank and the plan's order are fine."""
    with pytest.warns(
        UserWarning, match=r"order is 'ready'.*barrier is 'microbatch'.*order='plan'"
    ):
        loader(workers="thread", order="ready")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader(workers="thread", order="ready", barrier="step")
        loader(workers="thread", order="ready", dp_size=1)
        loader(workers="thread", order="plan")
