"""Samples of the overlap experiment: real images, decoded and resized whenever they are read."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

__all__ = ["DEARER", "Images", "Mix", "mixes"]

DEARER = 50
"""How many times a dear sample of the skewed mix is decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Samples to prepare, microbatch by microbatch.

    Attributes:
        name: `"uniform"`, `"real"` or `"skewed"`.
        image: Image of each sample.
        rounds: How often each sample is decoded.
        orders: Sample ids of each microbatch, in several orders, one a pass.
    """

    name: str
    image: NDArray[np.int64]
    rounds: NDArray[np.int64]
    orders: list[list[list[int]]]


class Images:
    """Map-style dataset of a mix: reads a file, decodes, resizes to `side` and normalises.

    Pillow and torch release the interpreter's lock in all that takes long.
    """

    def __init__(self, paths: Sequence[Path], mix: Mix, side: int) -> None:
        self.paths = list(paths)
        self.image = mix.image
        self.rounds = mix.rounds
        self.side = side

    def __len__(self) -> int:
        return len(self.image)

    def __getitem__(self, sample_id: int) -> torch.Tensor:
        data = self.paths[self.image[sample_id]].read_bytes()
        for _ in range(self.rounds[sample_id]):
            with Image.open(io.BytesIO(data)) as image:
                pixels = image.convert("RGB").resize((self.side, self.side))
        return torch.from_numpy(np.array(pixels)).permute(2, 0, 1).to(torch.float32).div_(255)


def mixes(
    folder: Path,
    *,
    num_microbatches: Mapping[str, int],
    microbatch: int,
    num_orders: int,
    seed: int,
) -> tuple[list[Path], list[Mix]]:
    """Paths of the images in a folder, and the three mixes of them.

    Uniform: one image of median size. Real: all images, equally often. Skewed: the uniform mix
    with one sample in a hundred decoded `DEARER` times. Every pass has the same samples in an order
    of its own, so what depends on where the dear ones stand shows in the spread of the passes.
    """
    lines = (folder / "samples.jsonl").read_text().splitlines()
    parts = [part for line in lines for part in json.loads(line)["content"]]
    pictures = [part for part in parts if part["type"] == "image"]
    paths = [folder / part["image"] for part in pictures]
    pixels = np.array([part["width"] * part["height"] for part in pictures])
    median = int(np.argsort(pixels, kind="stable")[len(pixels) // 2])
    made: list[Mix] = []
    for name, count in num_microbatches.items():
        rng = np.random.default_rng([seed, len(made)])
        samples = count * microbatch
        image, rounds = np.full(samples, median), np.ones(samples, np.int64)
        if name == "real":
            image = np.concatenate(
                [rng.permutation(len(paths)) for _ in range(-(-samples // len(paths)))]
            )[:samples]
        if name == "skewed":
            rounds[rng.choice(samples, max(1, samples // 100), replace=False)] = DEARER
        orders = [
            rng.permutation(samples).reshape(count, microbatch).tolist() for _ in range(num_orders)
        ]
        made.append(Mix(name=name, image=image, rounds=rounds, orders=orders))
    return paths, made
