"""A small vision transformer and a small decoder that train on packed microbatches."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from balancer.flops.dimensions import LanguageDims, VisionDims

__all__ = ["Decoder", "VisionTransformer"]


class _Block(nn.Module):
    """Pre-norm attention and gated MLP; attention stays within a segment."""

    def __init__(self, width: int, num_heads: int, mlp_width: int, *, causal: bool) -> None:
        super().__init__()
        self.num_heads, self.causal = num_heads, causal
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * mlp_width, bias=False)
        self.down = nn.Linear(mlp_width, width, bias=False)

    def forward(self, hidden: Tensor, lengths: Sequence[int]) -> Tensor:
        hidden = hidden + self.out(self._attention(self.attention_norm(hidden), lengths))
        gate, up = self.gate_up(self.mlp_norm(hidden)).chunk(2, dim=-1)
        return hidden + self.down(silu(gate) * up)

    def _attention(self, hidden: Tensor, lengths: Sequence[int]) -> Tensor:
        qkv = self.qkv(hidden).unflatten(-1, (3, self.num_heads, -1))
        segments = []
        for segment in qkv.split(list(lengths)):
            query, key, value = segment.permute(1, 2, 0, 3).unsqueeze(1)
            mixed = scaled_dot_product_attention(query, key, value, is_causal=self.causal)
            segments.append(mixed[0].transpose(0, 1).flatten(1))
        return torch.cat(segments)


class VisionTransformer(nn.Module):
    """Encoder of packed images; `forward` returns a scalar to go backward from."""

    def __init__(self, dims: VisionDims) -> None:
        super().__init__()
        self.embed = nn.Linear(dims.patch_values, dims.width, bias=False)
        self.blocks = nn.ModuleList(
            _Block(dims.width, dims.num_heads, dims.mlp_width, causal=False)
            for _ in range(dims.depth)
        )

    def forward(self, patches: Tensor, lengths: Sequence[int]) -> Tensor:
        """Scalar of patches `(patches, patch_values)` of images of so many patches each."""
        hidden = self.embed(patches)
        for block in self.blocks:
            hidden = block(hidden, lengths)
        return hidden.square().mean()


class Decoder(nn.Module):
    """Language model on packed samples; `forward` returns the loss."""

    def __init__(self, dims: LanguageDims) -> None:
        super().__init__()
        self.embed = nn.Embedding(dims.vocab_size, dims.width)
        self.blocks = nn.ModuleList(
            _Block(dims.width, dims.num_heads, dims.mlp_width, causal=True)
            for _ in range(dims.depth)
        )
        self.head = nn.Linear(dims.width, dims.vocab_size, bias=False)

    def forward(self, input_ids: Tensor, lengths: Sequence[int]) -> Tensor:
        """Loss of ids `(tokens,)` of samples of so many tokens each."""
        hidden = self.embed(input_ids)
        for block in self.blocks:
            hidden = block(hidden, lengths)
        return cross_entropy(self.head(hidden), input_ids)
