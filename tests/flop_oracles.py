"""FLOPs of transformers' own models, counted by torch, beside what the formulas say.

Models are built on the meta device: real shapes, no memory, no arithmetic. Attention runs as two
plain matrix products, so the counter sees the full square (`causal="full"`) and a backward pass
of exactly twice the forward.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from balancer.flops.dimensions import LanguageDims
from balancer.flops.forward import ForwardFlops
from balancer.flops.lora import Lora, lora_training_flops
from balancer.flops.training import Recompute, Training, training_flops

__all__ = [
    "DIRECTIONS",
    "Case",
    "FlopRow",
    "counted",
    "flop_row",
    "freeze",
    "lora_row",
    "on_meta",
    "projector_row",
]

DIRECTIONS = ("forward", "trained", "frozen_with_grad", "layers", "layers_early_stop")
"""No backward; whole backward; gradients of the input alone; and two kinds of recomputation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopRow:
    """What the formulas say and what the counter saw, for one model and direction."""

    model: str
    direction: str
    ours: float
    counter: float

    @property
    def relative_error(self) -> float:
        return abs(self.ours - self.counter) / self.counter


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model on the meta device, how to run it, and its FLOPs by the formulas.

    Attributes:
        name: Name of the model and of the input.
        build: Makes a fresh model with every parameter trained.
        run: Runs a model on the case's input and returns its output.
        entry: Name of the submodule whose output is the first to need a gradient when all is
            frozen (the embedding).
        parts: Forward FLOPs of the parts that the model consists of.
    """

    name: str
    build: Callable[[], nn.Module]
    run: Callable[[nn.Module], torch.Tensor]
    entry: str
    parts: tuple[ForwardFlops, ...]


def on_meta(model_class: Callable[..., Any], config: Any) -> Any:
    """The model of a configuration, in training mode, without memory for its weights."""
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model = model_class(config)
    return model.train()


def counted(run: Callable[[], torch.Tensor], *, backward: bool) -> int:
    """FLOPs of a forward pass, and of the backward pass too where asked."""
    with torch.set_grad_enabled(backward), FlopCounterMode(display=False) as counter:
        output = run()
        if backward:
            output.sum().backward()
    return counter.get_total_flops()


def flop_row(case: Case, direction: str) -> FlopRow:
    """One direction of one case."""
    model = case.build()
    training: Training = "trained"
    recompute: Recompute = "none"
    if direction == "frozen_with_grad":
        training = "frozen_with_grad"
        freeze(model)
        need_gradient(model.get_submodule(case.entry))
    if direction in ("layers", "layers_early_stop"):
        recompute = direction
        need_gradient(model.get_submodule(case.entry))
        model.activation_checkpointing_enable({"use_reentrant": direction == "layers"})
    backward = direction != "forward"
    ours = sum(
        np.sum(training_flops(part, training, recompute=recompute) if backward else part.total)
        for part in case.parts
    )
    counter = counted(lambda: case.run(model), backward=backward)
    return FlopRow(model=case.name, direction=direction, ours=float(ours), counter=counter)


def lora_row(case: Case, dims: LanguageDims, lora: Lora, recompute: Recompute) -> FlopRow:
    """A frozen language model with adapters; the case runs one sequence."""
    model = case.build()
    freeze(model)
    add_low_rank(model, tuple(f"{target}_proj" for target in lora.targets), lora.rank)
    need_gradient(model.get_submodule(case.entry))
    if recompute != "none":
        model.activation_checkpointing_enable({"use_reentrant": recompute == "layers"})
    (forward,) = case.parts
    tokens = forward.head / (2 * dims.width * dims.vocab_size)
    ours = lora_training_flops(dims, lora, tokens, forward, recompute=recompute)[0]
    counter = counted(lambda: case.run(model), backward=True)
    direction = f"lora_{recompute}_{''.join(target[0] for target in lora.targets)}"
    return FlopRow(model=case.name, direction=direction, ours=float(ours), counter=counter)


def projector_row(case: Case, projector: str, alone: ForwardFlops) -> FlopRow:
    """A frozen encoder without gradients before a trained projector (first stage of LLaVA).

    `alone` is the forward of the projector with `encoder_trains=False`.
    """
    model = case.build()
    freeze(model)
    for parameter in model.get_submodule(projector).parameters():
        parameter.requires_grad_(True)
    encoder, _ = case.parts
    ours = float(encoder.total.sum() + training_flops(alone).sum())
    counter = counted(lambda: case.run(model), backward=True)
    return FlopRow(model=case.name, direction="projector_only", ours=ours, counter=counter)


def freeze(model: nn.Module) -> None:
    """Stop every parameter from learning."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)


def need_gradient(module: nn.Module) -> None:
    """Make what the module returns need a gradient, as inputs before a frozen model do."""
    module.register_forward_hook(
        lambda _module, _inputs, output: output if output.requires_grad else output.requires_grad_()
    )


class LowRank(nn.Module):
    """A frozen linear layer beside a trained product of two thin ones (LoRA, Hu et al. 2021)."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        with torch.device("meta"):
            self.down = nn.Linear(base.in_features, rank, bias=False)
            self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.base(inputs) + self.up(self.down(inputs))


def add_low_rank(model: nn.Module, names: tuple[str, ...], rank: int) -> None:
    """Put trained low-rank layers beside the linear ones of these names."""
    places = [name for name, _ in model.named_modules() if name.rpartition(".")[2] in names]
    for place in places:
        parent, _, child = place.rpartition(".")
        owner = model.get_submodule(parent)
        setattr(owner, child, LowRank(getattr(owner, child), rank))
