"""Forward FLOPs of a model's modules from their dimensions.

One multiplication with its addition counts 2, as in `torch.utils.flop_counter.FlopCounterMode`.
Only matrix products and convolutions count; norms, activations, rotary embeddings and the softmax
do not. Formulas: Narayanan et al. 2021 (arXiv:2104.04473, appendix), extended to grouped-query
attention, gated MLPs, mixtures of experts, attention windows and projectors.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError
from balancer.flops.dimensions import AudioDims, LanguageDims, VisionDims

__all__ = [
    "Causal",
    "ForwardFlops",
    "language_flops",
    "language_forward",
    "projector_forward",
    "vision_flops",
    "vision_forward",
]

Causal = Literal["half", "full"]
"""What causal attention costs: the visible pairs (FlashAttention skips the others), or the full
square (a masked softmax, and what `FlopCounterMode` counts)."""

_FLOAT = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardFlops:
    """Forward FLOPs of each item, split by what the backward pass does to them.

    All arrays are float64 and have one entry an item.

    Attributes:
        stem: Products of weights with data, which needs no gradient (patch embedding).
        layer: Products of weights with activations inside the layers, the last one excepted.
        layer_end: The last product of each layer, where nothing after it needs its result.
        attention: Products of two activations inside the layers (scores, weighted values).
        head: Products of weights with activations behind the layers (projector, vocabulary).
    """

    stem: _FLOAT
    layer: _FLOAT
    layer_end: _FLOAT
    attention: _FLOAT
    head: _FLOAT

    @property
    def total(self) -> _FLOAT:
        """FLOPs of one forward pass, `(num_items,)`."""
        return self.stem + self.layer + self.layer_end + self.attention + self.head


def vision_forward(
    dims: VisionDims, segments: ArrayLike, grid_heights: ArrayLike, grid_widths: ArrayLike
) -> ForwardFlops:
    """Forward FLOPs of the vision transformer, without its projector, for each media item.

    Attention is quadratic within a segment, never across segments; in windowed layers it is the
    exact sum over the windows, those at the right and lower edges being smaller.

    Args:
        dims: Dimensions of the encoder.
        segments: Independent sequences of each item (tiles, frame groups), `(num_items,)`.
        grid_heights: Patch rows of a segment, `(num_items,)`.
        grid_widths: Patch columns of a segment, `(num_items,)`.

    Raises:
        ArgumentError: Shapes differ, or a number is negative.
    """
    num, rows, columns = _same_shape(
        segments=segments, grid_heights=grid_heights, grid_widths=grid_widths
    )
    in_segment = rows * columns + dims.prefix_tokens * (rows * columns > 0)
    positions = num * in_segment
    pairs = num * in_segment**2 * (dims.depth - dims.windowed_layers)
    if dims.window is not None:
        in_windows = _window_pairs(rows, dims.window) * _window_pairs(columns, dims.window)
        pairs = pairs + num * in_windows * dims.windowed_layers
    matrices = 4 * dims.width + (2 if dims.gated_mlp else 1) * dims.mlp_width
    return ForwardFlops(
        stem=2.0 * dims.patch_values * dims.width * num * rows * columns,
        layer=2.0 * dims.depth * dims.width * matrices * positions,
        layer_end=2.0 * dims.depth * dims.width * dims.mlp_width * positions,
        attention=4.0 * dims.width * pairs,
        head=np.zeros_like(positions),
    )


def projector_forward(
    dims: VisionDims | AudioDims, patches: ArrayLike, *, encoder_trains: bool = True
) -> ForwardFlops:
    """Forward FLOPs of the projector (merger) for media items of so many patches.

    Args:
        dims: Dimensions of the encoder, `projector_widths` among them.
        patches: Patches, or positions of audio, of each item before merging, `(num_items,)`.
        encoder_trains: Whether the encoder needs a gradient; without one, and without a norm that
            does, the first layer computes none for its input and counts as `stem`.
    """
    runs = 1 / dims.pool if isinstance(dims, AudioDims) else dims.num_projectors
    through = encoder_trains or (isinstance(dims, VisionDims) and dims.projector_norm)
    inputs = np.asarray(patches, np.float64) / dims.merge * runs
    widths = (dims.merge * dims.width, *dims.projector_widths)
    products = [2.0 * before * after for before, after in pairwise(widths)]
    first, rest = sum(products[:1]), sum(products[1:])
    zeros = np.zeros_like(inputs)
    return ForwardFlops(
        stem=zeros if through else first * inputs,
        layer=zeros,
        layer_end=zeros,
        attention=zeros,
        head=(first + rest) * inputs if through else rest * inputs,
    )


def vision_flops(
    dims: VisionDims, segments: ArrayLike, grid_heights: ArrayLike, grid_widths: ArrayLike
) -> _FLOAT:
    """Forward FLOPs of encoder and projector for each media item, float64 `(num_items,)`.

    Raises:
        ArgumentError: Shapes differ, or a number is negative.

    Example:
        >>> tiny = VisionDims(depth=1, width=2, num_heads=1, mlp_width=3, patch_values=5)
        >>> vision_flops(tiny, [1, 2], [2, 2], [2, 2])  # two tiles cost twice one
        array([432., 864.])
    """
    num, rows, columns = _same_shape(
        segments=segments, grid_heights=grid_heights, grid_widths=grid_widths
    )
    encoder = vision_forward(dims, num, rows, columns)
    return encoder.total + projector_forward(dims, num * rows * columns).total


def language_forward(
    dims: LanguageDims,
    tokens: ArrayLike,
    head_tokens: ArrayLike | None = None,
    *,
    causal: Causal = "half",
) -> ForwardFlops:
    """Forward FLOPs of the language model for sequences that do not attend to each other.

    Attention counts the pairs that see each other: `s (s + 1) / 2` of them under
    `causal="half"`, fewer in sliding layers, and `s * s` everywhere under `"full"`.

    Args:
        dims: Dimensions of the language model.
        tokens: Tokens of each sequence, `(num_sequences,)`.
        head_tokens: Tokens whose logits are computed; all of them when `None`.
        causal: Convention for causal attention.

    Raises:
        ArgumentError: Shapes differ, or a number is negative.
    """
    sizes, heads = _same_shape(
        tokens=tokens, head_tokens=tokens if head_tokens is None else head_tokens
    )
    if causal not in ("half", "full"):
        raise ArgumentError(f"causal is {causal!r}; allowed: 'half', 'full'")
    pairs = dims.depth * sizes**2
    if causal == "half":
        seen = (dims.depth - dims.sliding_layers) * _causal_pairs(sizes, None)
        pairs = seen + dims.sliding_layers * _causal_pairs(sizes, dims.sliding_window)
    matrices, last = _language_weights(dims)
    return ForwardFlops(
        stem=np.zeros_like(sizes),
        layer=2.0 * matrices * sizes,
        layer_end=2.0 * last * sizes,
        attention=4.0 * dims.query_width * pairs,
        head=2.0 * dims.width * dims.vocab_size * heads,
    )


def language_flops(
    dims: LanguageDims,
    tokens: ArrayLike,
    head_tokens: ArrayLike | None = None,
    *,
    causal: Causal = "half",
) -> _FLOAT:
    """Forward FLOPs of the language model for each sequence, float64 `(num_sequences,)`.

    Example:
        >>> dims = LanguageDims(depth=2, width=64, num_heads=4, mlp_width=128, vocab_size=1000)
        >>> one, half = language_flops(dims, [1024, 512])
        >>> bool(one > 2 * half)  # attention is quadratic
        True
    """
    return language_forward(dims, tokens, head_tokens, causal=causal).total


def _language_weights(dims: LanguageDims) -> tuple[float, float]:
    """Weights a token meets in all layers: before, and in, the product that ends a layer."""
    attention = 2 * dims.width * (dims.query_width + dims.kv_width)
    inner = (2 if dims.gated_mlp else 1) * dims.width
    dense_layers = dims.dense_layers if dims.num_experts else dims.depth
    routed = dims.experts_per_token * dims.expert_width + dims.shared_expert_width
    outputs = dims.num_experts + int(dims.shared_expert_gate)
    # The router's weights multiply the experts' results, so all of an expert is computed again.
    expert = routed * (inner + dims.width) + dims.width * outputs
    matrices = (
        dims.depth * attention
        + dense_layers * inner * dims.mlp_width
        + (dims.depth - dense_layers) * expert
    )
    return float(matrices), float(dense_layers * dims.width * dims.mlp_width)


def _causal_pairs(sizes: _FLOAT, window: int | None) -> _FLOAT:
    """Pairs (query, key) with the key not after the query, nor `window` or more before it."""
    edge = sizes if window is None else np.minimum(sizes, window)
    return edge * (edge + 1) / 2 + (sizes - edge) * edge


def _window_pairs(lengths: _FLOAT, window: int) -> _FLOAT:
    """Sum of the squared parts of a line cut every `window`; a grid's is the product of two."""
    whole, rest = np.divmod(lengths, window)
    squares: _FLOAT = whole * window**2 + rest**2
    return squares


def _same_shape(**arrays: ArrayLike) -> list[_FLOAT]:
    """The arrays as float64; raises where shapes differ or a number is negative."""
    columns = {name: np.asarray(values, np.float64) for name, values in arrays.items()}
    first_name, first = next(iter(columns.items()))
    for name, column in columns.items():
        if column.shape != first.shape or column.ndim != 1:
            raise ArgumentError(
                f"{name} has shape {column.shape}, {first_name} has {first.shape}; "
                "allowed: one dimension, equal lengths"
            )
        if not bool(np.all(column >= 0)):
            raise ArgumentError(f"{name} has a negative number or NaN; allowed: numbers >= 0")
    return list(columns.values())
