"""Activation bytes of a model in training, from its dimensions.

What autograd keeps of one layer for the backward pass was derived from the operations of the
eager implementations in transformers with an attention that does not keep scores (SDPA,
FlashAttention), and checked against `torch.autograd.graph.saved_tensors_hooks`. The same count
for a plain attention and a 4-fold MLP is in Korthikanti et al. 2022 (arXiv:2205.05198, section 4).
Kernels that fuse the norm or the MLP keep less. With b bytes a value, width h, query and key/value
widths q and k, H heads and MLP width f, a layer keeps for each token

    two RMS norms   2 (4 h + 4 + 2 b h)    input in float32, its scale, result before and after
    two layer norms 2 (2 b h + 8)          input, result, mean and scale
    attention       b (2 q + 2 k) + 4 H    query, key, value, result, log-sum-exp
      of encoders   7 b h + 4 H            fused product, rotated query and key, result, its copy
    gated MLP       4 b f                  gate, its activation, up, their product
    plain MLP       2 b f                  before and after the activation

Encoders are taken to have layer norms where their MLP is plain (CLIP, SigLIP, InternViT, Qwen2-VL,
Qwen3-VL) and RMS norms where it is gated (Qwen2.5-VL, Pixtral).
"""

from dataclasses import dataclass
from typing import Literal, get_args

from balancer.errors import ArgumentError
from balancer.flops.cost import FlopsCost
from balancer.flops.dimensions import LanguageDims, VisionDims
from balancer.flops.training import Recompute, Training
from balancer.memory import MemoryModel
from balancer.topology import check_choice, check_count

__all__ = ["Logits", "memory_model_from_cost", "memory_model_from_dims"]

Logits = Literal["materialised", "fused"]
"""Whether the logits of all tokens exist at once, or a chunked loss never holds them."""

_FLOAT32 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """What one layer takes for each position: kept for the backward, and its input alone."""

    kept: float
    input: float


def memory_model_from_dims(
    language: LanguageDims,
    vision: VisionDims | None = None,
    *,
    dtype_bytes: int = 2,
    language_training: Training = "trained",
    vision_training: Training = "trained",
    recompute: Recompute = "none",
    logits: Logits = "materialised",
    fixed_bytes: float = 0.0,
) -> MemoryModel:
    """Bytes of activations of a microbatch at its peak, from the model's dimensions.

    The peak is taken after the forward pass: all that autograd keeps, the logits in float32 with
    their gradient unless `logits="fused"`, and where layers are recomputed their inputs and all
    of one layer. Class tokens of the encoder are not counted (1 in 577 for CLIP).

    Args:
        language: Dimensions of the language model.
        vision: Dimensions of the vision encoder, if it runs.
        dtype_bytes: Bytes of an activation: 2 for bfloat16.
        language_training: How the language model trains. With adapters, say `"trained"`: they keep
            the inputs of the layers they adapt.
        vision_training: How the encoder trains; a frozen one keeps one layer at a time.
        recompute: Which activations the backward pass computes again.
        logits: Whether all logits exist at once.
        fixed_bytes: Bytes of any microbatch: workspaces, buffers of communication.

    Raises:
        ArgumentError: A choice is not one of those allowed.

    Example:
        >>> dims = LanguageDims(depth=32, width=4096, num_heads=32, mlp_width=11008,
        ...                     vocab_size=32000)
        >>> model = memory_model_from_dims(dims, recompute="layers")
        >>> round(model.bytes_per_token / 2**20, 2)  # MiB a token
        0.76
    """
    check_count("dtype_bytes", dtype_bytes)
    check_choice("recompute", recompute, get_args(Recompute))
    check_choice("logits", logits, get_args(Logits))
    check_choice("language_training", language_training, get_args(Training))
    check_choice("vision_training", vision_training, get_args(Training))
    layer = _language_layer(language, dtype_bytes, trained=language_training == "trained")
    per_token = _stack(layer, language.depth, language_training, recompute)
    per_token += _norm(language.width, dtype_bytes, trained=language_training == "trained")
    per_token += 2 * dtype_bytes * (language.query_width // language.num_heads)  # rotary tables
    if logits == "materialised":
        per_token += language.vocab_size * (dtype_bytes + 2 * _FLOAT32)
    per_patch = 0.0
    if vision is not None:
        trained = vision_training == "trained"
        layer = _vision_layer(vision, dtype_bytes, trained=trained)
        per_patch = _stack(layer, vision.depth, vision_training, recompute)
        per_patch += (_FLOAT32 + dtype_bytes) * vision.patch_values  # as delivered, and cast
        per_patch += _projector(vision, dtype_bytes)
    return MemoryModel(
        bytes_per_token=float(per_token),
        bytes_per_patch=float(per_patch),
        fixed_bytes=fixed_bytes,
    )


def memory_model_from_cost(
    cost: FlopsCost,
    *,
    dtype_bytes: int = 2,
    logits: Logits = "materialised",
    fixed_bytes: float = 0.0,
) -> MemoryModel:
    """Memory model of a preset or any `FlopsCost`: its dimensions, training and recomputation.

    Raises:
        ArgumentError: The model has an audio encoder, whose memory follows from no amount that
            limits are set on.

    Example:
        >>> from balancer.flops.presets import preset
        >>> model = memory_model_from_cost(preset("qwen2.5-vl-7b"))
        >>> model.bytes_per_token > model.bytes_per_patch
        True
    """
    if cost.audio is not None:
        raise ArgumentError(
            "cost has an audio encoder; its memory is linear in no amount of Limits: leave it out "
            "with dataclasses.replace(cost, audio=None) and put its peak in fixed_bytes"
        )
    adapted = cost.language_lora is not None
    return memory_model_from_dims(
        cost.language,
        cost.vision,
        dtype_bytes=dtype_bytes,
        language_training="trained" if adapted else cost.language_training,
        vision_training=cost.vision_training,
        recompute=cost.recompute,
        logits=logits,
        fixed_bytes=fixed_bytes,
    )


def _stack(layer: _Layer, depth: int, training: Training, recompute: Recompute) -> float:
    """Bytes a position of all layers."""
    if training == "frozen":
        return layer.kept  # one at a time, none is kept
    if recompute == "none":
        return depth * layer.kept
    return depth * layer.input + layer.kept


def _language_layer(dims: LanguageDims, size: int, *, trained: bool) -> _Layer:
    mlp = _mlp(dims.mlp_width, size, gated=dims.gated_mlp, trained=trained)
    if dims.num_experts:
        routed = dims.experts_per_token * (
            2 * size * dims.width
            + _mlp(dims.expert_width, size, gated=dims.gated_mlp, trained=trained)
        )
        shared = _mlp(dims.shared_expert_width, size, gated=dims.gated_mlp, trained=trained)
        experts = routed + shared + 2 * _FLOAT32 * dims.num_experts
        dense = dims.dense_layers / dims.depth
        mlp = dense * mlp + (1 - dense) * experts
    attention = size * (2 * dims.query_width + 2 * dims.kv_width) + _FLOAT32 * dims.num_heads
    kept = 2 * _norm(dims.width, size, trained=trained) + attention + mlp
    return _Layer(kept=kept, input=size * dims.width)


def _vision_layer(dims: VisionDims, size: int, *, trained: bool) -> _Layer:
    mlp = _mlp(dims.mlp_width, size, gated=dims.gated_mlp, trained=trained)
    attention = size * 7 * dims.width + _FLOAT32 * dims.num_heads
    norm = _norm if dims.gated_mlp else _layer_norm
    kept = 2 * norm(dims.width, size, trained=trained) + attention + mlp
    return _Layer(kept=kept, input=size * dims.width)


def _norm(width: int, size: int, *, trained: bool) -> float:
    """Input in float32 with its scale, and for the gradient of weights the results."""
    return _FLOAT32 * width + _FLOAT32 + (2 * size * width if trained else 0)


def _layer_norm(width: int, size: int, *, trained: bool) -> float:
    """Input, mean and scale, and the result where the matrix behind it trains."""
    return size * width * (1 + trained) + 2 * _FLOAT32


def _mlp(width: int, size: int, *, gated: bool, trained: bool) -> float:
    """What the activation and the product keep, and the input of the last matrix if it trains."""
    return size * width * ((3 if gated else 1) + trained)


def _projector(dims: VisionDims, size: int) -> float:
    """Norm before it, input, and each result before and after the activation."""
    outputs = 2 * size * sum(dims.projector_widths) / dims.merge
    return dims.num_projectors * (outputs + _norm(dims.width, size, trained=True))
