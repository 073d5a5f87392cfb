"""CPU time to read, decode and transform real images, predicted from their headers."""

import io
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from balancer.prep import PrepFeatures, fit_prep, resized_sizes
from balancer.probing import MediaFiles, probe
from balancer.tokens import token_rule
from benchmarks.measure import Record, versions

__all__ = ["PREDICTORS", "PrepTimes", "measure_prep", "prep_records", "prep_seconds"]

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


def prep_records(
    folder: str | Path, *, name: str = "pricing", repeats: int = 9, splits: int = 10, quick: bool
) -> list[Record]:
    """Held-out errors of the prep model, beside bytes alone and pixels alone.

    Fits on half of the images and predicts the other half, `splits` times with other halves.

    Args:
        folder: Folder of images.
        name: Name of the experiment in the records.
        repeats: Times each image is prepared; passes over all images, so that a slow moment of
            the machine hits no image in most of its repeats.
        splits: Random halves; the errors are means over them, the worst is a record too.
        quick: Three repeats.
    """
    times = measure_prep(folder, repeats=3 if quick else repeats)
    records = []
    for predictor, amounts in PREDICTORS.items():
        features = times.features.only(*amounts) if amounts else times.features
        held_out = [fit_prep(features, times.seconds, seed=seed).held_out for seed in range(splits)]
        errors = [quality.mape for quality in held_out]
        for metric, value in (
            ("mape_heldout", float(np.mean(errors))),
            ("mape_heldout_worst", float(np.max(errors))),
            ("spearman_heldout", float(np.mean([quality.spearman for quality in held_out]))),
        ):
            records.append(_record(name, predictor, metric, value, len(times.seconds) // 2, times))
    total = float(times.seconds.sum())
    records.append(_record(name, "measured", "prep_seconds", total, len(times.seconds), times, "s"))
    return records


def measure_prep(folder: str | Path, *, repeats: int) -> PrepTimes:
    """CPU seconds of every image of a folder, resized as the processor of Qwen2.5-VL does."""
    files = probe(folder, progress=False)
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


def _record(
    name: str,
    predictor: str,
    metric: str,
    value: float,
    n: int,
    times: PrepTimes,
    unit: str = "ratio",
) -> Record:
    return Record(
        experiment=name,
        data=f"{len(times.files)}_images",
        planner=predictor,
        topology="one_core",
        barrier="none",
        metric=metric,
        value=value,
        unit=unit,
        n=n,
        versions=versions() | {"pillow": version("pillow")},
    )
