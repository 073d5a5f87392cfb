"""FLOPs of a training pass, forward and backward, from those of the forward pass."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.flops.forward import ForwardFlops

__all__ = ["Recompute", "Training", "training_factor", "training_flops"]

Training = Literal["trained", "frozen", "frozen_with_grad"]
"""How a module trains: its weights learn; nothing flows back through it; gradients pass through."""

Recompute = Literal["none", "layers", "layers_early_stop"]
"""Activation recomputation: none; the forward of every layer runs again; or all of it but the last
product of a layer, where PyTorch's non-reentrant checkpoint (the default of transformers) stops."""


def training_factor(training: Training, *, recompute: Recompute = "none") -> float:
    """Forward and backward of a layer's weights, in forward passes; attention is separate.

    The backward pass is one product for the gradient of the input and one for that of the
    weights, each as large as the forward product; a frozen module has only the former, or neither.

    Raises:
        ArgumentError: Not one of the choices.

    Example:
        >>> training_factor("trained"), training_factor("trained", recompute="layers")
        (3.0, 4.0)
    """
    factors = {"trained": 3.0, "frozen": 1.0, "frozen_with_grad": 2.0}
    if training not in factors:
        raise ArgumentError(f"training is {training!r}; allowed: {', '.join(map(repr, factors))}")
    if recompute not in ("none", "layers", "layers_early_stop"):
        raise ArgumentError(
            f"recompute is {recompute!r}; allowed: 'none', 'layers', 'layers_early_stop'"
        )
    return factors[training] + (training != "frozen" and recompute != "none")


def training_flops(
    forward: ForwardFlops,
    training: Training = "trained",
    *,
    recompute: Recompute = "none",
    attention_backward: float = 2.0,
) -> NDArray[np.float64]:
    """FLOPs of forward and backward together, float64 `(num_items,)`.

    Args:
        forward: FLOPs of the forward pass.
        training: Whether weights learn, and whether gradients pass through. Attention has no
            weights: its backward is whole whenever gradients pass.
        recompute: What the backward pass computes again; only layers are, not stem and head.
        attention_backward: Backward of attention in forwards: 2 from its derivatives, 2.5 where
            the kernel computes the scores again (FlashAttention, Dao et al. 2022).

    Raises:
        ArgumentError: Not one of the choices.

    Example:
        >>> from balancer.flops.dimensions import LanguageDims
        >>> from balancer.flops.forward import language_forward
        >>> dims = LanguageDims(depth=2, width=64, num_heads=4, mlp_width=128, vocab_size=1000)
        >>> forward = language_forward(dims, [100])
        >>> training_flops(forward) / forward.total
        array([3.])
    """
    weights = training_factor(training, recompute=recompute)
    if training == "frozen":
        return forward.total
    again = float(recompute != "none")
    saved = forward.layer_end if recompute == "layers_early_stop" else 0.0
    return (
        forward.stem * (weights - again - 1.0)
        + (forward.layer + forward.layer_end) * weights
        - saved
        + forward.attention * (1.0 + attention_backward + again)
        + forward.head * (weights - again)
    )
