"""CPU time to read, decode and transform real images, predicted from their headers."""

import io
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from balancer.calibration.quality import held_out_rows
from balancer.prep import PrepFeatures, fit_prep, resized_sizes
from balancer.probing import MediaFiles, probe
from balancer.tokens import token_rule
from benchmarks.pricing_records import Predicted

__all__ = ["PREDICTORS", "PrepTimes", "measure_prep", "prep_predictions", "prep_seconds"]

_FLOAT = NDArray[np.float64]
_FAMILY = "qwen2.5-vl"
_PATCH = 14
PREDICTORS: dict[str, tuple[str, ...]] = {
    "prep_model": (),
    "bytes_only": ("bytes", "sample:items"),
    "pixels_only": ("pixels", "sample:items"),
}
"""Amounts that each predictor fits, all of them where none is named; formats stay apart in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepTimes:
    """Measured images.

    Attributes:
        files: Their headers.
        features: What the predictors see.
        seconds: Median CPU seconds of each image.
    """

    files: MediaFiles
    features: PrepFeatures
    seconds: _FLOAT


def prep_predictions(
    folder: str | Path, *, repeats: int = 9, splits: int = 10, quick: bool = False
) -> list[Predicted]:
    """The prep model, bytes alone and pixels alone on images that they were not fitted to.

    Fits on half of the images and predicts the other half, `splits` times with other halves.

    Args:
        folder: Folder of images.
        repeats: Times each image is prepared; passes over all images, so that a slow moment of
            the machine hits no image in most of its repeats.
        splits: Random halves.
        quick: One repeat of every other image.
    """
    times = measure_prep(folder, repeats=1 if quick else repeats, every=2 if quick else 1)
    return [_split(times, seed) for seed in range(splits)]


def _split(times: PrepTimes, seed: int) -> Predicted:
    aside = held_out_rows(len(times.seconds), 0.5, seed)
    predicted = {}
    for predictor, amounts in PREDICTORS.items():
        features = times.features.only(*amounts) if amounts else times.features
        model = fit_prep(features.select(~aside), times.seconds[~aside], held_out=0.1)
        predicted[predictor] = model.predict(features.select(aside))
    data = f"prep of {len(times.seconds)} images"
    return Predicted(data=data, seconds=times.seconds[aside], predicted=predicted)


def measure_prep(folder: str | Path, *, repeats: int, every: int = 1) -> PrepTimes:
    """CPU seconds of the images of a folder, resized as the processor of Qwen2.5-VL does."""
    images = sorted(path for path in Path(folder).iterdir() if path.is_file())[::every]
    files = probe(images, progress=False)
    tall, wide = resized_sizes(token_rule(_FAMILY), files.heights, files.widths, patch_size=_PATCH)
    paths = [str(path) for path in files.paths]
    seconds = np.empty((repeats, len(paths)))
    for path, height, width in zip(paths, tall, wide, strict=True):
        prep_seconds(path, int(height), int(width))  # fills the page cache, loads the decoders
    for repeat in range(repeats):
        for row in np.random.default_rng(repeat).permutation(len(paths)):
            seconds[repeat, row] = prep_seconds(paths[row], int(tall[row]), int(wide[row]))
    return PrepTimes(
        files=files,
        features=PrepFeatures.from_files(files, output_heights=tall, output_widths=wide),
        seconds=np.median(seconds, axis=0),
    )


def prep_seconds(path: str, height: int, width: int) -> float:
    """CPU seconds to read an image, decode it, resize it, and make it a normalised array."""
    from PIL import Image

    started = time.thread_time()
    encoded = Path(path).read_bytes()
    with Image.open(io.BytesIO(encoded)) as image:
        pixels = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
    values = np.asarray(pixels).astype(np.float32)
    values *= 1 / 255
    values -= 0.5
    values /= 0.5
    np.ascontiguousarray(values.transpose(2, 0, 1))
    return time.thread_time() - started
