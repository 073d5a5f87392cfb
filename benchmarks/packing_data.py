"""Lengths to pack, drawn from distributions and from a real trace."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Lengths", "draw_lengths"]

_INT = NDArray[np.int64]
_MOST_IMAGES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens of each sample, and images (or tiles) where the data has them."""

    name: str
    tokens: _INT
    images: _INT | None = None


def draw_lengths(
    name: str, size: int, capacity: int, seed: int, tiles: str | None = None
) -> Lengths:
    """Lengths by the name of their distribution, clipped to `[1, capacity]`.

    `lognormal` median 600, sigma 1; `zipf` 8 times a Zipf(1.5); `bimodal` lognormal text of median
    180 and in 60 % of the samples 1 to 6 images of 64 to 1,280 tokens; `uniform` between 0.2 and
    0.6 of the capacity; `internvl_tiles` drawn from the file `tiles`, all of it where `size` is
    the number of its rows.
    """
    rng = np.random.default_rng(seed)
    images: _INT | None = None
    tokens: NDArray[Any]
    if name == "internvl_tiles":
        tokens, images = _tiles(str(tiles), size, rng)
    elif name == "bimodal":
        drawn = np.minimum(rng.geometric(0.5, size), _MOST_IMAGES)
        images = np.where(rng.random(size) < 0.6, drawn, 0)
        each = rng.integers(64, 1281, (size, _MOST_IMAGES))
        seen = np.arange(_MOST_IMAGES) < images[:, None]
        tokens = rng.lognormal(np.log(180), 1, size) + (each * seen).sum(axis=1)
    elif name == "zipf":
        tokens = 8.0 * np.minimum(rng.zipf(1.5, size), capacity)
    elif name == "uniform":
        tokens = rng.uniform(0.2 * capacity, 0.6 * capacity, size)
    else:
        tokens = rng.lognormal(np.log(600), 1, size)
    whole = np.clip(np.rint(tokens), 1, capacity).astype(np.int64)
    return Lengths(name=name, tokens=whole, images=images)


def _tiles(path: str, size: int, rng: np.random.Generator) -> tuple[_INT, _INT]:
    from pyarrow import parquet

    table = parquet.read_table(Path(path), columns=["seq_tokens", "n_tiles"])
    tokens, tiles = (table[name].to_numpy().astype(np.int64) for name in table.column_names)
    if size == len(tokens):
        return tokens, tiles
    rows = rng.integers(0, len(tokens), size)
    return tokens[rows], tiles[rows]
