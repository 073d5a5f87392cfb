"""A vision-language model of some thousand parameters: encoder, merger, decoder; in float64."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.loaders.demo import IMAGE_TOKEN, MERGE, PATCH_VALUES

VOCABULARY = 64


class TinyModel(nn.Module):
    """Takes what PackedCollator makes; attention never leaves an image or a sample."""

    def __init__(self, width: int = 16, vision_width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Linear(PATCH_VALUES, vision_width)
        self.encoder = Attention(vision_width, causal=False)
        self.merger = nn.Linear(MERGE * vision_width, width)
        self.words = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(512, width)
        self.decoder = Attention(width, causal=True)
        self.head = nn.Linear(width, VOCABULARY)
        self.to(torch.float64)

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Sum of the token losses of a packed microbatch."""
        ids, labels = batch["input_ids"][0], batch["labels"][0]
        hidden = self.words(ids % VOCABULARY) + self.positions(batch["position_ids"][0])
        images = self._images(batch)
        if "pixel_values" in batch:
            places = (ids == IMAGE_TOKEN).nonzero()[:, 0]
            hidden = hidden.index_add(0, places, images)
        hidden = self.decoder(hidden, batch["cu_seqlens"].diff())
        logits = self.head(hidden)[:-1]
        targets = torch.where(labels == -100, labels, labels % VOCABULARY)[1:]
        losses = functional.cross_entropy(logits, targets, ignore_index=-100, reduction="sum")
        # Every parameter takes part in every microbatch, so that DDP never waits for one.
        return losses + 0.0 * images.sum()

    def _images(self, batch: dict[str, Any]) -> Tensor:
        """One vector an image token; of an image of zeros where the microbatch has none."""
        if "pixel_values" in batch:
            pixels = batch["pixel_values"].to(torch.float64)
            lengths = batch["image_grid_thw"].prod(dim=1)
        else:
            pixels = torch.zeros(MERGE, PATCH_VALUES, dtype=torch.float64)
            lengths = torch.tensor([MERGE])
        return self.merger(
            self.encoder(self.patches(pixels), lengths).reshape(len(pixels) // 4, -1)
        )


class Attention(nn.Module):
    """One head of attention within consecutive segments, with a residual connection."""

    def __init__(self, width: int, *, causal: bool) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.causal = causal

    def forward(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        segments = torch.repeat_interleave(lengths.long())
        visible = segments[:, None] == segments[None, :]
        if self.causal:
            visible = visible.tril()
        query, key, value = (part[None, None] for part in self.project(hidden).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible)
        return hidden + self.out(mixed[0, 0])
