"""PackedCollator and PaddedCollator: samples of a microbatch -> the tensors a model takes."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from balancer.errors import SampleError
from balancer.plan import Flag
from balancer.topology import Layout, check_choice, check_count
from loaders.fields import IGNORED_LABEL, concatenate_media, field, token_row
from loaders.microbatch import MicrobatchFacts

__all__ = ["PackedCollator", "PaddedCollator", "PositionBuilder", "restarting_positions"]

PositionBuilder = Callable[[Any, int], Tensor]
"""Positions of a sample's tokens, `(..., tokens)`, from the sample and its number of tokens."""

CheckTargets = Literal["error", "warn", "off"]

MEDIA_FIELDS = (
    "pixel_values",
    "image_sizes",
    "image_grid_thw",
    "pixel_values_videos",
    "video_grid_thw",
)


def restarting_positions(sample: Any, num_tokens: int) -> Tensor:
    """Positions `0, 1, 2, ...` of one sample.

    Example:
        >>> restarting_positions({}, 3)
        tensor([0, 1, 2])
    """
    return torch.arange(num_tokens)


class _Collator:
    """What both layouts share: how samples are read, labels made and facts added."""

    layout: Layout
    wants_facts = True

    def __init__(
        self,
        *,
        positions: PositionBuilder = restarting_positions,
        token_fields: Sequence[str] = (),
        media_fields: Sequence[str] = MEDIA_FIELDS,
        unsupervised_ids: Sequence[int] = (),
        check_targets: CheckTargets = "warn",
    ) -> None:
        check_choice("check_targets", check_targets, get_args(CheckTargets))
        self.positions = positions
        self.token_fields = tuple(token_fields)
        self.media_fields = tuple(media_fields)
        self.unsupervised_ids = tuple(unsupervised_ids)
        self.check_targets = check_targets
        self._warned = False

    def _rows(
        self, samples: Sequence[Any], facts: MicrobatchFacts | None
    ) -> dict[str, list[Tensor]]:
        """For every per-token field, one tensor `(..., tokens)` a sample."""
        if not len(samples):
            raise SampleError("samples is empty; a microbatch holds at least one sample")
        names = ("input_ids", "position_ids", "labels", *self.token_fields)
        rows: dict[str, list[Tensor]] = {name: [] for name in names}
        for place, sample in enumerate(samples):
            sample_id = facts.sample_ids[place] if facts else place
            is_filler = facts is not None and facts.flags[place] == Flag.FILLER
            input_ids = token_row(sample, "input_ids", sample_id)
            num_tokens = len(input_ids)
            positions = self.positions(sample, num_tokens)
            if positions.shape[-1] != num_tokens:
                raise SampleError(
                    f"positions of sample {sample_id} are {positions.shape[-1]}, its input_ids "
                    f"has {num_tokens}; the position builder must return one position a token",
                    sample_ids=[sample_id],
                )
            rows["input_ids"].append(input_ids)
            rows["position_ids"].append(positions)
            rows["labels"].append(self._labels(sample, input_ids, sample_id, is_filler))
            for name in self.token_fields:
                rows[name].append(token_row(sample, name, sample_id, length=num_tokens))
        return rows

    def _labels(self, sample: Any, input_ids: Tensor, sample_id: int, is_filler: bool) -> Tensor:
        """Labels in line with the tokens; the first has none, as nothing precedes it."""
        if is_filler:
            return torch.full_like(input_ids, IGNORED_LABEL)
        if field(sample, "labels") is None:
            labels = input_ids.clone()
            for token_id in self.unsupervised_ids:
                labels[labels == token_id] = IGNORED_LABEL
        else:
            labels = token_row(sample, "labels", sample_id, length=len(input_ids)).clone()
        labels[0] = IGNORED_LABEL
        return labels

    def _facts(self, labels: Sequence[Tensor], facts: MicrobatchFacts | None) -> dict[str, Any]:
        """Entries that say how to weigh the loss, after a check of the size table."""
        counts = [int((row != IGNORED_LABEL).sum()) for row in labels]
        entries: dict[str, Any] = {"num_target_tokens": sum(counts)}
        if facts is None:
            return entries
        self._compare_targets(counts, facts)
        return entries | {
            "global_target_tokens": facts.step_target_tokens,
            "global_samples": facts.step_samples,
            "loss_scale": facts.loss_scale,
            "is_filler": facts.is_filler,
            "sample_ids": torch.tensor(facts.sample_ids),
            "sample_flags": torch.tensor(facts.flags, dtype=torch.int8),
        }

    def _compare_targets(self, counts: Sequence[int], facts: MicrobatchFacts) -> None:
        if self.check_targets == "off" or self._warned or tuple(counts) == facts.target_tokens:
            return
        places = [i for i, count in enumerate(counts) if count != facts.target_tokens[i]]
        sample_ids = [facts.sample_ids[place] for place in places]
        message = (
            f"target_tokens of sample {sample_ids[0]} is {facts.target_tokens[places[0]]} in the "
            f"size table, but {counts[places[0]]} of its labels have a loss ({len(places)} of "
            f"{len(counts)} samples differ): losses would not be divided by the true number of "
            "target tokens; give SampleTable target_tokens (the first token of a sample never "
            "counts), or pass check_targets='off'"
        )
        if self.check_targets == "error":
            raise SampleError(message, sample_ids=sample_ids)
        self._warned = True
        warnings.warn(message, stacklevel=2)


class PackedCollator(_Collator):
    """Joins the samples of a microbatch end to end in one row, without any padding.

    Samples are mappings, dataclasses or other objects with `input_ids`, and optionally `labels`
    (-100: no loss), media fields and further fields with one entry a token. `T` tokens become:

    - `input_ids`, `labels` and each of `token_fields`: `(1, T)`. Labels stand at their token, as
      Hugging Face models expect: logits at `t` predict the label at `t + 1`. The first token of
      each sample has label -100, so no sample is predicted from the one before it. Where a sample
      has no `labels` they are its `input_ids` without `unsupervised_ids`.
    - `position_ids`: `(1, T)`, restarting at 0 in each sample; with a builder that returns
      `(3, tokens)`, as for multimodal rotary positions, `(3, 1, T)`.
    - `cu_seqlens`: int32 `(samples + 1,)`, from 0 to `T`; `max_seqlen`: int. They keep attention
      within each sample; there is no all-ones 2-D mask, which would silently undo that.
    - media, by `loaders.fields.concatenate_media`: for example `pixel_values` of all patches with
      `image_grid_thw`. Absent where no sample of the microbatch has any.
    - `num_target_tokens`: labels of this microbatch that have a loss.

    and, where the microbatch comes from a `BalancedBatchSampler`:

    - `global_target_tokens`, `global_samples`: of the whole step, over all ranks and microbatches.
    - `loss_scale`: `dp_size / global_target_tokens`; `is_filler`: whether all samples are fillers
      (their labels are all -100).
    - `sample_ids`: int64; `sample_flags`: int8, `balancer.plan.Flag` of each sample.

    **The loss.** Microbatches hold unequal numbers of target tokens, so a mean of their means is
    wrong. Sum the token losses and multiply by `loss_scale` before each backward. Averaged over the
    ranks, as DDP and FSDP do, the gradient is that of the mean over all target tokens of the step,
    however its samples were placed. Where gradients are added up over ranks, divide by
    `global_target_tokens` instead.

    Args:
        positions: Builds the positions of a sample.
        token_fields: Further fields with one entry a token.
        media_fields: Fields joined over their first dimension.
        unsupervised_ids: Tokens without a loss where labels are made here: media placeholders.
        check_targets: What to do where the labels with a loss are not as many as the size table
            says, so that the normaliser is not the true one: `"error"`, `"warn"` once, or `"off"`.

    Raises:
        SampleError: A sample has no tokens, or a field is not one entry a token.

    Example:
        Two samples on two ranks; the gradient of their mean token loss is 2 in every placement.

        >>> batch = PackedCollator()([{"input_ids": [7, 8, 9]}, {"input_ids": [5, 6]}])
        >>> batch["position_ids"], batch["cu_seqlens"]
        (tensor([[0, 1, 2, 0, 1]]), tensor([0, 3, 5], dtype=torch.int32))
        >>> batch["labels"]
        tensor([[-100,    8,    9, -100,    6]])
        >>> dp_size, gradients = 2, []
        >>> for sample in ({"input_ids": [7, 8, 9]}, {"input_ids": [5, 6]}):
        ...     weight = torch.ones((), requires_grad=True)
        ...     targets = PackedCollator()([sample])["num_target_tokens"]
        ...     token_losses = 2 * weight.expand(targets)
        ...     (token_losses.sum() * dp_size / batch["num_target_tokens"]).backward()
        ...     gradients.append(weight.grad)
        >>> sum(gradients) / dp_size
        tensor(2.)
    """

    layout: Layout = "packed"

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Tensors of one microbatch."""
        facts = getattr(samples, "facts", None)
        rows = self._rows(samples, facts)
        lengths = torch.tensor([0, *map(len, rows["input_ids"])])
        batch: dict[str, Any] = {
            name: torch.cat(parts, dim=-1).unsqueeze(-2) for name, parts in rows.items()
        }
        batch["cu_seqlens"] = lengths.cumsum(0).to(torch.int32)
        batch["max_seqlen"] = int(lengths.max())
        batch |= concatenate_media(samples, self.media_fields)
        return batch | self._facts(rows["labels"], facts)


class PaddedCollator(_Collator):
    """Stacks the samples of a microbatch in rows, padded on the right to the longest.

    Reads samples and adds media and facts as `PackedCollator` does, and the rule for the loss is
    the same. With `B` samples and `L` tokens in a row the tensors are `(B, L)`: `input_ids`,
    `attention_mask` (1 for a token, 0 for padding), `labels` (padding -100), `position_ids`
    (padding 0; `(3, B, L)` from a builder that returns three rows), and each of `token_fields`
    (padding 0). Plan for it with `Limits(layout="padded")`.

    Args:
        pad_token_id: Id that fills up `input_ids`.
        pad_to_multiple_of: Rows are as long as the longest, rounded up to a multiple of this.
            `max_tokens` counts rows times the longest before rounding: leave room for it.
        positions: Builds the positions of a sample.
        token_fields: Further fields with one entry a token.
        media_fields: Fields joined over their first dimension.
        unsupervised_ids: Tokens without a loss where labels are made here: media placeholders.
        check_targets: As for `PackedCollator`.

    Raises:
        ArgumentError: `pad_to_multiple_of` is not a positive whole number.
        SampleError: A sample has no tokens, or a field is not one entry a token.

    Example:
        >>> batch = PaddedCollator(pad_token_id=0)([{"input_ids": [7, 8, 9]}, {"input_ids": [5]}])
        >>> batch["input_ids"], batch["attention_mask"]
        (tensor([[7, 8, 9],
                [5, 0, 0]]), tensor([[1, 1, 1],
                [1, 0, 0]]))
    """

    layout: Layout = "padded"

    def __init__(
        self,
        *,
        pad_token_id: int,
        pad_to_multiple_of: int = 1,
        positions: PositionBuilder = restarting_positions,
        token_fields: Sequence[str] = (),
        media_fields: Sequence[str] = MEDIA_FIELDS,
        unsupervised_ids: Sequence[int] = (),
        check_targets: CheckTargets = "warn",
    ) -> None:
        super().__init__(
            positions=positions,
            token_fields=token_fields,
            media_fields=media_fields,
            unsupervised_ids=unsupervised_ids,
            check_targets=check_targets,
        )
        check_count("pad_to_multiple_of", pad_to_multiple_of)
        self.pad_token_id = pad_token_id
        self.pad_to_multiple_of = pad_to_multiple_of

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Tensors of one microbatch."""
        facts = getattr(samples, "facts", None)
        rows = self._rows(samples, facts)
        longest = max(map(len, rows["input_ids"]))
        width = -(-longest // self.pad_to_multiple_of) * self.pad_to_multiple_of
        fill = {"input_ids": self.pad_token_id, "labels": IGNORED_LABEL}
        padded = rows | {"attention_mask": [torch.ones_like(row) for row in rows["input_ids"]]}
        batch: dict[str, Any] = {
            name: _stack(parts, width, fill.get(name, 0)) for name, parts in padded.items()
        }
        batch |= concatenate_media(samples, self.media_fields)
        return batch | self._facts(rows["labels"], facts)


def _stack(parts: Sequence[Tensor], width: int, value: int) -> Tensor:
    """Tensors `(..., tokens)` as one `(..., samples, width)`."""
    return torch.stack([pad(part, (0, width - part.shape[-1]), value=value) for part in parts], -2)
