"""What both layouts of a microbatch share: how samples are read, labels made and facts added."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from balancer.checks import check_choice
from balancer.errors import ArgumentError, SampleError
from balancer.plan import Flag
from balancer.topology import Layout
from loaders.fields import IGNORED_LABEL, field, token_row
from loaders.loss import sample_loss_scales
from loaders.microbatch import MicrobatchFacts

__all__ = ["MEDIA_FIELDS", "CheckTargets", "Collator", "PositionBuilder", "restarting_positions"]

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


class Collator:
    """Base of the collators; its arguments are described at `loaders.collate.PackedCollator`."""

    layout: Layout
    wants_facts = True

    def __init__(
        self,
        *,
        pad_token_id: int,
        uniform_shape: bool,
        positions: PositionBuilder,
        token_fields: Sequence[str],
        media_fields: Sequence[str],
        unsupervised_ids: Sequence[int],
        check_targets: CheckTargets,
        debug: bool,
    ) -> None:
        check_choice("check_targets", check_targets, get_args(CheckTargets))
        self.pad_token_id = pad_token_id
        self.uniform_shape = uniform_shape
        self.positions = positions
        self.token_fields = tuple(token_fields)
        self.media_fields = tuple(media_fields)
        self.unsupervised_ids = tuple(unsupervised_ids)
        self.check_targets = check_targets
        self.debug = debug
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

    def _fill(self, name: str) -> int:
        """What padding holds in a field."""
        return {
            "input_ids": self.pad_token_id,
            "labels": IGNORED_LABEL,
            "sequence_ids": -1,
        }.get(name, 0)

    def _uniform(self, facts: MicrobatchFacts | None) -> tuple[int, int]:
        """Rows and tokens a row that all microbatches of the step are to have."""
        if facts is None or facts.step_shape is None:
            raise ArgumentError(
                "uniform_shape is True, but these samples come without the facts of a plan; read "
                "them through a BalancedDataLoader, or a BalancedBatchSampler and MicrobatchDataset"
            )
        return facts.step_shape

    def _refuse_too_long(
        self, found: int, allowed: int, what: str, facts: MicrobatchFacts | None
    ) -> None:
        if found > allowed:
            ids = facts.sample_ids if facts else ()
            raise SampleError(
                f"samples {', '.join(map(str, ids))} make {found} {what}, the plan's largest of "
                f"the step has {allowed}; the size table counts too few tokens, or pad_sample_to "
                "or pad_microbatch_to differ from those of the plan's Limits",
                sample_ids=ids,
            )

    def _facts(self, labels: Sequence[Tensor], facts: MicrobatchFacts | None) -> dict[str, Any]:
        """Entries that say how to weigh the loss, after a check of the size table."""
        counts = [int((row != IGNORED_LABEL).sum()) for row in labels]
        entries: dict[str, Any] = {"num_samples": len(labels), "num_target_tokens": sum(counts)}
        if facts is None:
            return entries
        self._compare_targets(counts, facts)
        return entries | {
            "global_target_tokens": facts.step_target_tokens,
            "global_samples": facts.step_samples,
            "global_target_samples": facts.step_target_samples,
            "rank_target_tokens": facts.rank_target_tokens,
            "rank_samples": facts.rank_samples,
            "loss_scale": facts.loss_scale,
            "sample_loss_scales": sample_loss_scales(counts, facts),
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

    def _check_lengths(self, batch: Mapping[str, Any], names: Sequence[str], width: int) -> None:
        """Refuse a field that has not one entry a token after padding."""
        for name in names:
            if batch[name].shape[-1] != width:
                raise SampleError(
                    f"{name} has {batch[name].shape[-1]} entries a row, input_ids has {width}; "
                    "every field of tokens needs one entry a token"
                )
