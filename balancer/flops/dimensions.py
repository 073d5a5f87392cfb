"""Dimensions of the modules of a model: the numbers its FLOPs follow from."""

from dataclasses import dataclass

from balancer.errors import ArgumentError

__all__ = ["AudioDims", "LanguageDims", "VisionDims"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionDims:
    """Dimensions of a vision transformer and of the projector behind it.

    Attributes:
        depth: Number of transformer layers.
        width: Hidden size.
        num_heads: Attention heads; they split the width.
        mlp_width: Hidden size of the MLP.
        gated_mlp: Whether the MLP has three matrices (gate, up, down) instead of two.
        patch_values: Numbers in one patch: channels x frames x patch height x patch width.
        merge: Patches joined into one input of the projector.
        projector_widths: Output size of each linear layer of the projector, first to last; its
            input is `merge * width`. Empty when there is none.
        projector_norm: Whether a trained norm stands before the first of them, whose input then
            needs a gradient even behind a frozen encoder.
        num_projectors: Projectors of that shape run on every patch (Qwen3-VL has one more for
            each deepstack layer).
        window: Patches on the side of an attention window, or `None` for global attention.
        full_attention_layers: With a window, layers that attend to the whole segment all the same.
        prefix_tokens: Class tokens in front of each segment; the projector does not see them.

    Raises:
        ArgumentError: A dimension is not a whole number in its range.

    Example:
        >>> VisionDims(depth=27, width=1152, num_heads=16, mlp_width=4304, patch_values=588).merge
        1
    """

    depth: int
    width: int
    num_heads: int
    mlp_width: int
    gated_mlp: bool = False
    patch_values: int
    merge: int = 1
    projector_widths: tuple[int, ...] = ()
    projector_norm: bool = False
    num_projectors: int = 1
    window: int | None = None
    full_attention_layers: int = 0
    prefix_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("depth", "width", "num_heads", "mlp_width", "patch_values", "merge"):
            _check(name, getattr(self, name), at_least=1)
        for name in ("num_projectors", "full_attention_layers", "prefix_tokens"):
            _check(name, getattr(self, name), at_least=0)
        for projector_width in self.projector_widths:
            _check("projector_widths", projector_width, at_least=1)
        _check_heads(self.width, self.num_heads)
        if self.window is not None:
            _check("window", self.window, at_least=1)
            if self.prefix_tokens:
                raise ArgumentError(
                    f"prefix_tokens is {self.prefix_tokens}; allowed with a window: 0"
                )
        _check_layers("full_attention_layers", self.full_attention_layers, self.depth)

    @property
    def windowed_layers(self) -> int:
        """Layers whose attention stays inside a window."""
        return 0 if self.window is None else self.depth - self.full_attention_layers


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioDims:
    """Dimensions of a Whisper-like audio encoder and of the projector behind it.

    Two convolutions over the mel spectrogram, the second with a stride, make the positions that
    the transformer layers run on; each window of audio attends to itself alone.

    Attributes:
        depth: Number of transformer layers.
        width: Hidden size.
        num_heads: Attention heads; they split the width.
        mlp_width: Hidden size of the MLP, which has two matrices.
        mel_bins: Channels of the spectrogram.
        conv_kernel: Width of both convolutions, in frames.
        conv_stride: Spectrogram frames behind one position.
        pool: Positions averaged into one (Qwen2-Audio 2).
        merge: Positions joined, after pooling, into one input of the projector (Voxtral 4).
        projector_widths: Output size of each linear layer of the projector, first to last; its
            input is `merge * width`. Empty when there is none.

    Raises:
        ArgumentError: A dimension is not a whole number in its range.

    Example:
        >>> AudioDims(depth=32, width=1280, num_heads=20, mlp_width=5120, mel_bins=128).merge
        1
    """

    depth: int
    width: int
    num_heads: int
    mlp_width: int
    mel_bins: int = 80
    conv_kernel: int = 3
    conv_stride: int = 2
    pool: int = 1
    merge: int = 1
    projector_widths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("depth", "width", "num_heads", "mlp_width", "mel_bins"):
            _check(name, getattr(self, name), at_least=1)
        for name in ("conv_kernel", "conv_stride", "pool", "merge"):
            _check(name, getattr(self, name), at_least=1)
        for projector_width in self.projector_widths:
            _check("projector_widths", projector_width, at_least=1)
        _check_heads(self.width, self.num_heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageDims:
    """Dimensions of a decoder-only language model, dense or mixture of experts.

    Attributes:
        depth: Number of transformer layers.
        width: Hidden size.
        num_heads: Query heads.
        num_kv_heads: Key and value heads (grouped-query attention); the query heads when `None`.
        head_dim: Size of a head; `width / num_heads` when `None`.
        mlp_width: Hidden size of the MLP of a dense layer.
        gated_mlp: Whether each MLP has three matrices (gate, up, down) instead of two.
        vocab_size: Outputs of the language-model head; 0 for a model without one.
        num_experts: Experts the router chooses from; 0 for a dense model.
        experts_per_token: Experts that each token runs through.
        expert_width: Hidden size of one expert.
        shared_expert_width: Hidden size of the expert that every token runs through, or 0.
        shared_expert_gate: Whether a one-output layer scales the shared expert.
        dense_layers: Of a mixture of experts, the layers with a dense MLP instead.
        sliding_window: Latest positions a token attends to (itself included) in sliding layers.
        sliding_layers: Layers with sliding attention.

    Raises:
        ArgumentError: A dimension is not a whole number in its range, or is missing.

    Example:
        >>> dims = LanguageDims(depth=2, width=64, num_heads=4, mlp_width=128, vocab_size=1000)
        >>> dims.query_width, dims.kv_width
        (64, 64)
    """

    depth: int
    width: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    mlp_width: int
    gated_mlp: bool = True
    vocab_size: int
    num_experts: int = 0
    experts_per_token: int = 0
    expert_width: int = 0
    shared_expert_width: int = 0
    shared_expert_gate: bool = False
    dense_layers: int = 0
    sliding_window: int | None = None
    sliding_layers: int = 0

    def __post_init__(self) -> None:
        for name in ("depth", "width", "num_heads"):
            _check(name, getattr(self, name), at_least=1)
        for name in ("mlp_width", "vocab_size", "num_experts", "shared_expert_width"):
            _check(name, getattr(self, name), at_least=0)
        if self.num_kv_heads is not None:
            _check("num_kv_heads", self.num_kv_heads, at_least=1)
        if self.head_dim is not None:
            _check("head_dim", self.head_dim, at_least=1)
        else:
            _check_heads(self.width, self.num_heads)
        if self.num_experts:
            _check("experts_per_token", self.experts_per_token, at_least=1)
            _check("expert_width", self.expert_width, at_least=1)
        _check_layers("dense_layers", self.dense_layers, self.depth)
        _check_layers("sliding_layers", self.sliding_layers, self.depth)
        if self.sliding_layers:
            _check("sliding_window", self.sliding_window, at_least=1)

    @property
    def query_width(self) -> int:
        """Outputs of the query projection."""
        return self.num_heads * self._head_dim

    @property
    def kv_width(self) -> int:
        """Outputs of the key projection, and of the value projection."""
        return (self.num_kv_heads or self.num_heads) * self._head_dim

    @property
    def _head_dim(self) -> int:
        return self.head_dim or self.width // self.num_heads


def _check(name: str, value: object, *, at_least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ArgumentError(f"{name} is {value!r}; allowed: whole numbers >= {at_least}")


def _check_heads(width: int, num_heads: int) -> None:
    if width % num_heads:
        raise ArgumentError(
            f"num_heads is {num_heads}, which does not divide width = {width}; "
            "a language model may set head_dim instead"
        )


def _check_layers(name: str, layers: int, depth: int) -> None:
    _check(name, layers, at_least=0)
    if layers > depth:
        raise ArgumentError(f"{name} is {layers}, more than depth = {depth}")
