"""Losses of microbatches that add up to the loss of their step, however it was split.

Microbatches hold unequal numbers of target tokens, so a mean of their means is wrong. What to
divide by belongs to the whole step, over all ranks and microbatches, and the plan knows it before
the first backward. Two normalisers:

- `"token"`: the mean over all target tokens of the step; long samples weigh more.
- `"sample"`: the mean, over all samples of the step with a target token, of each one's own mean.

```python
for step in loader.steps():
    for microbatch in step:
        losses = token_losses(model(microbatch["input_ids"]), microbatch["labels"])
        step_loss(losses, microbatch, normaliser="token").backward()
    optimizer.step()
```

The gradient, averaged over the ranks as DDP and FSDP do, is that of one process which runs the
step's samples one by one, repeats (`tail="pad"`) as often as they stand in the step and fillers not
at all. Where gradients are added up over ranks, divide by `dp_size`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from balancer.checks import check_choice
from balancer.errors import ArgumentError
from loaders.fields import IGNORED_LABEL
from loaders.microbatch import MicrobatchFacts

__all__ = ["Normaliser", "sample_loss_scales", "sample_losses", "step_loss", "token_losses"]

Normaliser = Literal["token", "sample"]


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of each token's label from the logits of the token before it.

    Args:
        logits: `(rows, tokens, vocabulary)`.
        labels: `(rows, tokens)`, each at its own token; -100 for no loss.

    Returns:
        `(rows, tokens - 1)`, zero where there is no loss: finite without a single target.

    Example:
        >>> token_losses(torch.zeros(1, 3, 4), torch.tensor([[-100, 2, -100]]))
        tensor([[1.3863, 0.0000]])
    """
    return cross_entropy(
        logits[:, :-1].transpose(1, 2), labels[:, 1:], ignore_index=IGNORED_LABEL, reduction="none"
    )


def sample_losses(losses: Tensor, microbatch: Mapping[str, Any]) -> Tensor:
    """Sum of the token losses of each sample, `(samples,)`, also within a packed row.

    Args:
        losses: A loss for each token, `(rows, tokens)`, or without the first, as `token_losses`.
        microbatch: What a collator returned; its `sequence_ids` say whose token is whose.

    Raises:
        ArgumentError: `losses` has another shape.

    Example:
        >>> packed = {"sequence_ids": torch.tensor([[0, 0, 1, 1, -1]]), "num_samples": 2}
        >>> sample_losses(torch.tensor([[1.0, 2.0, 4.0, 8.0]]), packed)
        tensor([1., 6.])
    """
    sequence_ids = microbatch["sequence_ids"]
    if losses.shape == (*sequence_ids.shape[:-1], sequence_ids.shape[-1] - 1):
        sequence_ids = sequence_ids[..., 1:]
    if losses.shape != sequence_ids.shape:
        raise ArgumentError(
            f"losses has shape {tuple(losses.shape)}; allowed: that of sequence_ids, "
            f"{tuple(sequence_ids.shape)}, or one token a row less: one loss a token, not their sum"
        )
    sums = losses.new_zeros(microbatch["num_samples"] + 1)  # the first takes what is padding
    places = (sequence_ids.reshape(-1) + 1).to(losses.device)
    return sums.index_add(0, places, losses.reshape(-1))[1:]


def step_loss(
    losses: Tensor, microbatch: Mapping[str, Any], *, normaliser: Normaliser = "token"
) -> Tensor:
    """A microbatch's part of the loss of its step; call `backward` on it.

    Args:
        losses: A loss for each token, zero where there is none, as `token_losses` returns it.
        microbatch: What a collator returned for a microbatch of a plan.
        normaliser: `"token"` or `"sample"`, as described above.

    Raises:
        ArgumentError: The normaliser is unknown, or the microbatch has no facts of a plan.

    Example:
        Two samples of 1 and 3 target tokens, the whole step of one rank.

        >>> step = {"sequence_ids": torch.tensor([[0, 0, 1, 1, 1, 1]]), "num_samples": 2,
        ...         "loss_scale": 1 / 4, "sample_loss_scales": torch.tensor([1 / 2, 1 / 6])}
        >>> losses = torch.tensor([[0.0, 8.0, 0.0, 1.0, 2.0, 3.0]])
        >>> step_loss(losses, step), step_loss(losses, step, normaliser="sample")
        (tensor(3.5000), tensor(5.))
    """
    check_choice("normaliser", normaliser, get_args(Normaliser))
    if "loss_scale" not in microbatch:
        raise ArgumentError(
            "microbatch has no loss_scale: it was collated without the facts of a plan; read it "
            "through a BalancedDataLoader, or a BalancedBatchSampler and MicrobatchDataset"
        )
    if normaliser == "token":
        scale: float = microbatch["loss_scale"]
        return losses.sum() * scale
    scales: Tensor = microbatch["sample_loss_scales"].to(losses)
    return (sample_losses(losses, microbatch) * scales).sum()


def sample_loss_scales(target_tokens: Sequence[int], facts: MicrobatchFacts) -> Tensor:
    """What to multiply the sum of each sample's token losses by, float64 `(samples,)`.

    `dp_size / (step_target_samples * target_tokens)`; 0 for a sample without a target.
    """
    whole = facts.dp_size / max(facts.step_target_samples, 1)
    return torch.tensor(
        [whole / count if count else 0.0 for count in target_tokens], dtype=torch.float64
    )
