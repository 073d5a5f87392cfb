"""Losses add up to the step's, however its samples are split over ranks and microbatches."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.plan import Flag, Plan
from loaders.collate import PackedCollator, PaddedCollator
from loaders.loader import BalancedDataLoader
from loaders.loss import sample_losses, step_loss, token_losses
from loaders.microbatch import Microbatch, SampleList
from loaders.sampler import BalancedBatchSampler
from loaders.step_facts import step_microbatches
from tests.loaders.planning import TextDataset, skewed_lengths, text_tokens
from tests.loaders.processes import run_ranks

VOCABULARY = 16
NORMALISERS = ["token", "sample"]
COLLATORS = [
    PackedCollator(check_targets="error"),
    PackedCollator(check_targets="error", pad_sample_to=4),
    PaddedCollator(check_targets="error", pad_token_id=0, pad_sample_to=4),
]


def make_model() -> nn.Module:
    """Logits of a token from itself alone, in float64."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(VOCABULARY, 8), nn.Tanh(), nn.Linear(8, VOCABULARY)).double()


def reference(samples: list[dict[str, Any]], normaliser: str) -> list[torch.Tensor]:
    """Gradients of one process that runs the samples one by one, without our recipe."""
    model, losses, targets = make_model(), [], []
    for sample in samples:
        ids, labels = torch.tensor([sample["input_ids"]]), torch.tensor([sample["labels"]])
        logits = model(ids)[0, :-1]
        losses.append(nn.functional.cross_entropy(logits, labels[0, 1:], reduction="sum"))
        targets.append(int((labels[0, 1:] != -100).sum()))
    if normaliser == "token":
        loss = sum(losses) / max(sum(targets), 1)
    else:
        means = [loss / count for loss, count in zip(losses, targets, strict=True) if count]
        loss = sum(means) / max(len(means), 1) if means else 0.0 * losses[0]
    loss.backward()
    return [parameter.grad for parameter in model.parameters()]


def sample_of(ids: list[int], keep: list[bool]) -> dict[str, Any]:
    labels = [i if kept else -100 for i, kept in zip(ids, keep, strict=True)]
    return {"input_ids": ids, "labels": [-100, *labels[1:]]}


token = st.tuples(st.integers(0, VOCABULARY - 1), st.booleans())
a_sample = st.lists(token, min_size=1, max_size=6).map(lambda pairs: sample_of(*zip(*pairs)))  # noqa: B905
splits = st.integers(1, 3).flatmap(  # [microbatch][rank] -> samples with their flags
    lambda dp_size: st.lists(
        st.lists(
            st.lists(
                st.tuples(a_sample, st.sampled_from([Flag.REAL, Flag.REPEAT, Flag.FILLER])),
                min_size=1,
                max_size=3,
            ),
            min_size=dp_size,
            max_size=dp_size,
        ),
        min_size=1,
        max_size=3,
    )
)


@given(splits, st.sampled_from(NORMALISERS), st.sampled_from(COLLATORS))
def test_case_i3_any_split_of_a_step_makes_the_gradient_of_one_process(slots, normaliser, collator):
    """To 1e-10, with accumulation, repeats counted, fillers not, and ranks without a target."""
    cells = [cell for slot in slots for cell in slot]
    placed = [pair for cell in cells for pair in cell]
    samples, flags = [sample for sample, _ in placed], [flag for _, flag in placed]
    numbers = iter(range(len(placed)))
    plan = Plan.from_cells([[[[next(numbers) for _ in cell] for cell in slot] for slot in slots]])
    object.__setattr__(plan, "flags", torch.tensor(flags, dtype=torch.int8).numpy())
    targets = [sum(label != -100 for label in sample["labels"]) for sample in samples]
    lengths = [len(sample["input_ids"]) for sample in samples]
    costs = Costs.from_values(lengths, tokens=lengths, target_tokens=targets)

    dp_size = len(slots[0])
    models = [make_model() for _ in range(dp_size)]
    for ids in step_microbatches(plan, costs, dp_ranks=range(dp_size)):
        batch = collator(SampleList([samples[i] for i in ids], ids.facts))
        logits = models[ids.facts.dp_rank](batch["input_ids"])
        loss = step_loss(token_losses(logits, batch["labels"]), batch, normaliser=normaliser)
        assert torch.isfinite(loss)
        loss.backward()
    counted = [sample for sample, flag in placed if flag != Flag.FILLER]
    expected = reference(counted or samples[:1], normaliser) if counted else None
    for place, parameters in enumerate(zip(*(m.parameters() for m in models), strict=True)):
        mean = sum(parameter.grad for parameter in parameters) / dp_size
        wanted = torch.zeros_like(mean) if expected is None else expected[place]
        torch.testing.assert_close(mean, wanted, rtol=1e-10, atol=1e-12)


def test_case_i9_the_losses_of_each_sample_of_a_pack_are_known():
    batch = PackedCollator(pad_sample_to=4)([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}])
    assert batch["sequence_ids"].tolist() == [[0, 0, 0, -1, 1, 1, -1, -1]]
    losses = torch.tensor([[0.0, 1, 2, 0, 0, 4, 0, 0]])
    assert sample_losses(losses, batch).tolist() == [3, 4]
    assert sample_losses(losses[:, 1:], batch).tolist() == [3, 4]
    with pytest.raises(ArgumentError, match=r"losses has shape \(\)"):
        sample_losses(losses.sum(), batch)


def test_bad_use_is_refused_by_name():
    batch = PackedCollator()([{"input_ids": [1, 2]}])
    with pytest.raises(ArgumentError, match="normaliser is 'mean'"):
        step_loss(torch.zeros(1, 2), batch, normaliser="mean")
    with pytest.raises(ArgumentError, match="without the facts of a plan"):
        step_loss(torch.zeros(1, 2), batch)


class LabelledDataset(TextDataset):
    """Texts of random tokens; some have no target at all."""

    def __init__(self, num_samples: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.samples = []
        for length in skewed_lengths(num_samples):
            ids = torch.randint(VOCABULARY, (length,), generator=generator).tolist()
            keep = (torch.rand(length, generator=generator) < 0.5).tolist()
            self.samples.append(sample_of(ids, keep if len(self.samples) % 5 else [False] * length))
        super().__init__([len(sample["input_ids"]) for sample in self.samples])
        targets = [sum(i != -100 for i in sample["labels"]) for sample in self.samples]
        self.sizes = type(self.sizes).from_arrays(text_tokens=self.lengths, target_tokens=targets)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.samples[index]


def last_step(dp_size: int, tail: str) -> list[Microbatch]:
    """All microbatches of an epoch's last step, which has repeats or fillers."""
    loader = BalancedDataLoader(
        LabelledDataset(70), cost_model=text_tokens, global_batch_size=8 * dp_size, tail=tail,
        num_microbatches=4, max_microbatches=4, dp_rank=0, dp_size=dp_size, effort="fast",
    )  # fmt: skip
    last = loader.steps_per_epoch - 1
    everyone = BalancedBatchSampler(loader.batch_sampler.planner)
    return [microbatch for microbatch in everyone if microbatch.facts.step == last]


def train_a_step(rank: int, folder: Any, step: list[Microbatch], kind: str, form: str) -> None:
    """The rank's microbatches of the step under DDP or FSDP2; the gradients are saved."""
    model: Any = make_model()
    if kind == "fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (distributed.get_world_size(),)))
    parallel = DistributedDataParallel(model) if kind == "ddp" else model
    samples, collate = LabelledDataset(70).samples, PackedCollator(check_targets="error")
    for microbatch in step:
        if microbatch.facts.dp_rank != rank:
            continue
        batch = collate(SampleList([samples[i] for i in microbatch], microbatch.facts))
        if kind == "ddp":
            parallel.require_backward_grad_sync = microbatch.facts.is_last
        losses = token_losses(parallel(batch["input_ids"]), batch["labels"])
        step_loss(losses, batch, normaliser=form).backward()
    grads: list[Any] = [parameter.grad for parameter in model.parameters()]
    torch.save([g.full_tensor() if kind == "fsdp" else g for g in grads], folder / f"{rank}.pt")


@pytest.mark.dist
@pytest.mark.parametrize(
    ("dp_size", "kind", "tail", "normaliser"),
    [
        (2, "ddp", "pad", "token"),
        (2, "fsdp", "filler", "sample"),
        (4, "ddp", "filler", "token"),
    ],
)
def test_case_i4_processes_make_the_gradient_of_one(dp_size, kind, tail, normaliser, tmp_path):
    step = last_step(dp_size, tail)
    placed = [pair for mb in step for pair in zip(mb, mb.facts.flags, strict=True)]
    assert (Flag.REPEAT if tail == "pad" else Flag.FILLER) in {flag for _, flag in placed}
    run_ranks(train_a_step, dp_size, tmp_path, step, kind, normaliser)
    samples = LabelledDataset(70).samples
    counted = [samples[index] for index, flag in placed if flag != Flag.FILLER]
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(dp_size)]
    for place, expected in enumerate(reference(counted, normaliser)):
        assert expected.abs().max() > 0
        for gradients in ranks:
            torch.testing.assert_close(gradients[place], expected, rtol=1e-10, atol=1e-12)
