"""FLOPs of training a frozen language model through low-rank adapters (LoRA)."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.flops.dimensions import LanguageDims
from balancer.flops.forward import ForwardFlops
from balancer.flops.training import Recompute, training_flops

__all__ = ["Adapted", "Lora", "adapter_forward", "lora_training_flops"]

Adapted = Literal["q", "k", "v", "o", "gate", "up", "down"]
"""Matrices of a layer that may have an adapter: attention's four and the MLP's."""

_ALL: tuple[Adapted, ...] = get_args(Adapted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters of every layer (Hu et al. 2021, arXiv:2106.09685).

    Attributes:
        rank: Size between the two thin matrices of an adapter.
        targets: Matrices with an adapter; all linear layers unless given.

    Raises:
        ArgumentError: The rank is not positive, or a target is not known or is given twice.

    Example:
        >>> Lora(rank=16, targets=("q", "v")).targets
        ('q', 'v')
    """

    rank: int
    targets: tuple[Adapted, ...] = _ALL

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise ArgumentError(f"rank is {self.rank!r}; allowed: whole numbers >= 1")
        known = set(self.targets) <= set(_ALL)
        if not known or len(set(self.targets)) != len(self.targets) or not self.targets:
            raise ArgumentError(
                f"targets is {self.targets!r}; allowed: one or more of {', '.join(_ALL)}, each once"
            )


def adapter_forward(
    dims: LanguageDims, lora: Lora, tokens: NDArray[np.int64] | NDArray[np.float64]
) -> ForwardFlops:
    """Forward FLOPs of the adapters alone, for each sequence.

    Raises:
        ArgumentError: An MLP has an adapter where the model has experts, or a gate it lacks.
    """
    mlp = [target for target in lora.targets if target in ("gate", "up", "down")]
    if mlp and dims.num_experts:
        raise ArgumentError(
            f"targets has {', '.join(mlp)}; allowed for a mixture of experts: q, k, v, o"
        )
    if "gate" in mlp and not dims.gated_mlp:
        raise ArgumentError("targets has gate; the MLP of this model is not gated")
    sizes = np.asarray(tokens, np.float64)
    outputs = {"q": dims.query_width, "k": dims.kv_width, "v": dims.kv_width}
    outputs |= {"gate": dims.mlp_width, "up": dims.mlp_width}
    inputs = {"o": dims.query_width, "down": dims.mlp_width}
    weights = sum(
        inputs.get(target, dims.width) + outputs.get(target, dims.width) for target in lora.targets
    )
    last = dims.width if "down" in lora.targets else 0
    per_token = 2.0 * dims.depth * lora.rank * sizes
    zeros = np.zeros_like(sizes)
    return ForwardFlops(
        stem=zeros,
        layer=per_token * (weights - last),
        layer_end=per_token * last,
        attention=zeros,
        head=zeros,
    )


def lora_training_flops(
    dims: LanguageDims,
    lora: Lora,
    tokens: NDArray[np.int64] | NDArray[np.float64],
    forward: ForwardFlops,
    *,
    recompute: Recompute = "none",
    attention_backward: float = 2.0,
) -> NDArray[np.float64]:
    """FLOPs of forward and backward through the frozen model and its trained adapters.

    Every layer passes gradients, the first one too (as with `enable_input_require_grads` of
    transformers, or a trained encoder before it).

    Args:
        dims: Dimensions of the language model.
        lora: The adapters.
        tokens: Tokens of each sequence.
        forward: Forward FLOPs of the frozen model on them.
        recompute: What the backward pass computes again.
        attention_backward: Backward of attention in forwards.

    Raises:
        ArgumentError: The adapters do not fit the model.

    Example:
        >>> from balancer.flops.forward import language_forward
        >>> dims = LanguageDims(depth=2, width=64, num_heads=4, mlp_width=128, vocab_size=1000)
        >>> forward = language_forward(dims, [100])
        >>> tuned = lora_training_flops(dims, Lora(rank=8), np.array([100]), forward)
        >>> bool(2 < tuned[0] / forward.total[0] < 3)
        True
    """
    if "down" in lora.targets:  # its base product runs before the adapter's, so it is redone
        forward = replace(
            forward,
            layer=forward.layer + forward.layer_end,
            layer_end=np.zeros_like(forward.layer_end),
        )
    base = training_flops(
        forward, "frozen_with_grad", recompute=recompute, attention_backward=attention_backward
    )
    return base + training_flops(adapter_forward(dims, lora, tokens), recompute=recompute)
