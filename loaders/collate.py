"""PackedCollator and PaddedCollator: samples of a microbatch -> the tensors a model takes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from balancer.checks import check_count
from balancer.errors import ArgumentError
from balancer.topology import Layout
from loaders.collator import (
    MEDIA_FIELDS,
    CheckTargets,
    Collator,
    PositionBuilder,
    restarting_positions,
)
from loaders.fields import concatenate_media

__all__ = ["PackedCollator", "PaddedCollator"]


class PackedCollator(Collator):
    """Joins the samples of a microbatch end to end in one row, padded only where asked for.

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
    - `sequence_ids`: int32 `(1, T)`, the place of each token's sample in the microbatch, -1 for
      padding; `num_samples`.
    - with `pad_sample_to`, `pad_microbatch_to` or `uniform_shape`: `cu_seqlens_padded` and
      `max_seqlen_padded`, where the samples lie in the row; `cu_seqlens` then counts them without
      their padding, as Transformer Engine takes both. A kernel that knows only one gets
      `cu_seqlens_padded`. Padding follows each sample's tokens; it has no loss.
    - media, by `loaders.fields.concatenate_media`: for example `pixel_values` of all patches with
      `image_grid_thw`. Absent where no sample of the microbatch has any.
    - `num_target_tokens`: labels of this microbatch that have a loss.

    and, where the microbatch comes from a `BalancedBatchSampler`:

    - `global_target_tokens`, `global_samples`, `global_target_samples` (those with a target): of
      the whole step, over all ranks and microbatches; `rank_target_tokens`, `rank_samples`: of this
      rank's part of it.
    - `loss_scale`: `dp_size / global_target_tokens`; `sample_loss_scales`: float64 `(samples,)`,
      what to multiply each sample's summed losses by for a mean over samples (`loaders.loss`).
    - `is_filler`: whether all samples are fillers (their labels are all -100).
    - `sample_ids`: int64; `sample_flags`: int8, `balancer.plan.Flag` of each sample.

    **The loss.** Microbatches hold unequal numbers of target tokens, so a mean of their means is
    wrong. Sum the token losses and multiply by `loss_scale` before each backward. Averaged over the
    ranks, as DDP and FSDP do, the gradient is that of the mean over all target tokens of the step,
    however its samples were placed. Where gradients are added up over ranks, divide by
    `global_target_tokens` instead. `loaders.loss.step_loss` does this, and means over samples.

    Args:
        pad_sample_to: Each sample takes a multiple of as many tokens: 2 x ranks of context
            parallelism. Give the plan's `Limits` the same, and likewise the next.
        pad_microbatch_to: The row has a multiple of as many tokens (16 for FP8), itself a multiple
            of `pad_sample_to`.
        uniform_shape: Whether all microbatches of a step are as long as its longest, as model
            pipelines need it; `loaders.uniform.padding_fraction` says what that costs.
        pad_token_id: Id that stands in `input_ids` where padding is asked for.
        positions: Builds the positions of a sample.
        token_fields: Further fields with one entry a token.
        media_fields: Fields joined over their first dimension.
        unsupervised_ids: Tokens without a loss where labels are made here: media placeholders.
        check_targets: What to do where the labels with a loss are not as many as the size table
            says, so that the normaliser is not the true one: `"error"`, `"warn"` once, or `"off"`.
        debug: Whether every field of tokens is measured once more after padding.

    Raises:
        ArgumentError: A multiple is not a positive whole number, or does not fit the other.
        SampleError: A sample has no tokens, a field is not one entry a token, or a microbatch is
            longer than the plan's longest.

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

    def __init__(
        self,
        *,
        pad_sample_to: int = 1,
        pad_microbatch_to: int = 1,
        uniform_shape: bool = False,
        pad_token_id: int = 0,
        positions: PositionBuilder = restarting_positions,
        token_fields: Sequence[str] = (),
        media_fields: Sequence[str] = MEDIA_FIELDS,
        unsupervised_ids: Sequence[int] = (),
        check_targets: CheckTargets = "warn",
        debug: bool = False,
    ) -> None:
        super().__init__(
            pad_token_id=pad_token_id,
            uniform_shape=uniform_shape,
            positions=positions,
            token_fields=token_fields,
            media_fields=media_fields,
            unsupervised_ids=unsupervised_ids,
            check_targets=check_targets,
            debug=debug,
        )
        check_count("pad_sample_to", pad_sample_to)
        check_count("pad_microbatch_to", pad_microbatch_to)
        if pad_microbatch_to > 1 and pad_microbatch_to % pad_sample_to:
            raise ArgumentError(
                f"pad_microbatch_to is {pad_microbatch_to}, pad_sample_to is {pad_sample_to}; the "
                "last sample takes the row's padding: give a multiple of pad_sample_to"
            )
        self.pad_sample_to = pad_sample_to
        self.pad_microbatch_to = pad_microbatch_to

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Tensors of one microbatch."""
        facts = getattr(samples, "facts", None)
        rows = self._rows(samples, facts)
        lengths = [len(row) for row in rows["input_ids"]]
        widths = [_round_up(length, self.pad_sample_to) for length in lengths]
        total = sum(widths)
        width = self._uniform(facts)[1] if self.uniform_shape else total
        self._refuse_too_long(total, width, "tokens", facts)
        widths[-1] += _round_up(width, self.pad_microbatch_to) - total
        rows["sequence_ids"] = _sequence_ids(lengths)
        batch: dict[str, Any] = {
            name: torch.cat(_widened(parts, widths, self._fill(name)), dim=-1).unsqueeze(-2)
            for name, parts in rows.items()
        }
        batch["cu_seqlens"] = _bounds(lengths)
        batch["max_seqlen"] = max(lengths)
        if self.pad_sample_to > 1 or self.pad_microbatch_to > 1 or self.uniform_shape:
            batch["cu_seqlens_padded"] = _bounds(widths)
            batch["max_seqlen_padded"] = max(widths)
        if self.debug:
            self._check_lengths(batch, tuple(rows), sum(widths))
        batch |= concatenate_media(samples, self.media_fields)
        return batch | self._facts(rows["labels"], facts)


class PaddedCollator(Collator):
    """Stacks the samples of a microbatch in rows, padded on the right to the longest.

    Reads samples and adds media and facts as `PackedCollator` does, and the rule for the loss is
    the same. With `B` samples and `L` tokens in a row the tensors are `(B, L)`: `input_ids`,
    `attention_mask` (1 for a token, 0 for padding), `labels` (padding -100), `sequence_ids`
    (padding -1), `position_ids` (padding 0; `(3, B, L)` from a builder that returns three rows),
    and each of `token_fields` (padding 0). Plan for it with `Limits(layout="padded")`.

    With `uniform_shape` a microbatch of fewer samples gets rows of padding; the mask of each is 1
    at its first token, as attention to nothing at all is not a number.

    Args:
        pad_token_id: Id that fills up `input_ids`.
        pad_sample_to: Rows are as long as the longest sample, rounded up to a multiple of this; so
            is the microbatch. Give the plan's `Limits` the same.
        uniform_shape: Whether all microbatches of a step have as many rows, and rows as long, as
            its largest, as model pipelines need it.
        positions: Builds the positions of a sample.
        token_fields: Further fields with one entry a token.
        media_fields: Fields joined over their first dimension.
        unsupervised_ids: Tokens without a loss where labels are made here: media placeholders.
        check_targets: As for `PackedCollator`, and likewise `debug`.

    Raises:
        ArgumentError: `pad_sample_to` is not a positive whole number.
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
        pad_sample_to: int = 1,
        uniform_shape: bool = False,
        positions: PositionBuilder = restarting_positions,
        token_fields: Sequence[str] = (),
        media_fields: Sequence[str] = MEDIA_FIELDS,
        unsupervised_ids: Sequence[int] = (),
        check_targets: CheckTargets = "warn",
        debug: bool = False,
    ) -> None:
        super().__init__(
            pad_token_id=pad_token_id,
            uniform_shape=uniform_shape,
            positions=positions,
            token_fields=token_fields,
            media_fields=media_fields,
            unsupervised_ids=unsupervised_ids,
            check_targets=check_targets,
            debug=debug,
        )
        check_count("pad_sample_to", pad_sample_to)
        self.pad_sample_to = pad_sample_to

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Tensors of one microbatch."""
        facts = getattr(samples, "facts", None)
        rows = self._rows(samples, facts)
        lengths = [len(row) for row in rows["input_ids"]]
        width, count = _round_up(max(lengths), self.pad_sample_to), len(lengths)
        if self.uniform_shape:
            most, longest = self._uniform(facts)
            self._refuse_too_long(count, most, "rows", facts)
            self._refuse_too_long(width, longest, "tokens in a row", facts)
            count, width = most, longest
        rows["sequence_ids"] = _sequence_ids(lengths)
        rows["attention_mask"] = [torch.ones_like(row) for row in rows["input_ids"]]
        batch: dict[str, Any] = {
            name: _stack(parts, count, width, self._fill(name)) for name, parts in rows.items()
        }
        batch["attention_mask"][len(lengths) :, 0] = 1
        if self.debug:
            self._check_lengths(batch, tuple(rows), width)
        batch |= concatenate_media(samples, self.media_fields)
        return batch | self._facts(rows["labels"], facts)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _bounds(widths: Sequence[int]) -> Tensor:
    """Where each sample begins, and the last ends."""
    return torch.tensor([0, *widths]).cumsum(0).to(torch.int32)


def _sequence_ids(lengths: Sequence[int]) -> list[Tensor]:
    """For each sample its place, once a token."""
    return [torch.full((n,), place, dtype=torch.int32) for place, n in enumerate(lengths)]


def _widened(parts: Sequence[Tensor], widths: Sequence[int], value: int) -> list[Tensor]:
    """Tensors `(..., tokens)`, each as `(..., width)`."""
    return [
        part if part.shape[-1] == width else pad(part, (0, width - part.shape[-1]), value=value)
        for part, width in zip(parts, widths, strict=True)
    ]


def _stack(parts: Sequence[Tensor], count: int, width: int, value: int) -> Tensor:
    """Tensors `(..., tokens)` as one `(..., count, width)`."""
    stacked = torch.stack(_widened(parts, [width] * len(parts), value), -2)
    return pad(stacked, (0, 0, 0, count - len(parts)), value=value)
