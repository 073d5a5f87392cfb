"""Real times of a small encoder and a small decoder, beside what cost models predict of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from balancer.calibrate import calibrate
from balancer.calibration.fit import fit_times
from balancer.calibration.measurements import Measurements
from balancer.calibration.plot import plot_calibration
from balancer.calibration.quality import Quality, held_out_rows, prediction_quality
from balancer.calibration.result import Calibration
from balancer.flops.dimensions import LanguageDims, VisionDims
from balancer.flops.forward import language_flops, vision_flops
from benchmarks.measure import Record, hardware
from benchmarks.tiny_models import Decoder, VisionTransformer

__all__ = ["DECODER", "VIT", "measure_pricing_times", "time_decoder", "time_vit"]

VIT = VisionDims(
    depth=2, width=128, num_heads=2, mlp_width=352, gated_mlp=True, patch_values=3 * 14 * 14
)
DECODER = LanguageDims(depth=2, width=128, num_heads=2, mlp_width=352, vocab_size=2048)

_BACKWARD = 3.0  # forward and backward in forwards
_FLOAT = NDArray[np.float64]
_Shapes = list[NDArray[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """Measurements of one module and what the other predictors go by."""

    data: str
    measurements: Measurements
    module: str
    count: str
    flops: _FLOAT


def measure_pricing_times(
    *,
    name: str,
    num_shapes: int = 80,
    repeats: int = 11,
    seed: int = 0,
    quick: bool = False,
    figure: str | None = None,
) -> list[Record]:
    """Error on held-out shapes of calibrated coefficients, of FLOPs alone and of counts alone.

    Forward and backward of packed microbatches of random samples on one thread; the median of
    the repeats, which go round all shapes, so that a slow moment hits different shapes. Every
    predictor is fitted to the same half of the shapes; FLOPs and counts get one coefficient each,
    as planners use them. Errors are over all held-out shapes, outliers included.

    Args:
        name: Name of the experiment in the records.
        num_shapes: Microbatches of each model.
        repeats: Timed rounds.
        seed: Seed of the shapes and of the half that is held out.
        quick: Smaller microbatches and few rounds, to see that it runs.
        figure: Where to draw predicted against measured seconds (`.png`), a file a model.
    """
    rounds, largest = (2, 512) if quick else (repeats, 1024)
    records = []
    for timer in (time_vit, time_decoder):
        times = timer(num_shapes, rounds, largest=largest, seed=seed)
        calibration, errors = _errors(times, seed)
        records += _records(name, times.data, errors)
        if figure is not None:
            path = Path(figure)
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn = path.with_stem(f"{path.stem}_{times.data}")
            plot_calibration(calibration, times.measurements, drawn)
    return records


def time_vit(num_shapes: int, rounds: int, *, largest: int = 1024, seed: int = 0) -> _Times:
    """Times of microbatches of 1 to 6 images of 64 to `largest` patches."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = VisionTransformer(VIT)
    sides = [_lengths(rng, 8, int(largest**0.5)) for _ in range(num_shapes)]
    shapes = [side**2 for side in sides]
    calls = [
        partial(_train, model, torch.randn(int(shape.sum()), VIT.patch_values), shape.tolist())
        for shape in shapes
    ]
    flops = [vision_flops(VIT, np.ones_like(side), side, side).sum() for side in sides]
    return _Times(
        data="vit",
        module="vision",
        count="patches",
        measurements=Measurements(
            amounts={
                "patches": _sums(shapes, 1),
                "patches_squared": _sums(shapes, 2),
                "images": _sums(shapes, 0),
            },
            seconds={"vision": _median_rounds(calls, rounds)},
        ),
        flops=_BACKWARD * np.array(flops),
    )


def time_decoder(num_shapes: int, rounds: int, *, largest: int = 1024, seed: int = 0) -> _Times:
    """Times of microbatches of 1 to 6 samples of 32 to `largest` tokens."""
    rng = np.random.default_rng(seed + 1)
    torch.manual_seed(seed)
    model = Decoder(DECODER)
    shapes = [_lengths(rng, 32, largest) for _ in range(num_shapes)]
    calls = [
        partial(
            _train, model, torch.randint(DECODER.vocab_size, (int(shape.sum()),)), shape.tolist()
        )
        for shape in shapes
    ]
    return _Times(
        data="decoder",
        module="language",
        count="tokens",
        measurements=Measurements(
            amounts={"tokens": _sums(shapes, 1), "tokens_squared": _sums(shapes, 2)},
            seconds={"language": _median_rounds(calls, rounds)},
        ),
        flops=_BACKWARD * np.array([language_flops(DECODER, shape).sum() for shape in shapes]),
    )


def _lengths(rng: np.random.Generator, low: int, high: int) -> NDArray[np.int64]:
    """1 to 6 lengths, uniform in their logarithm."""
    sizes = np.exp(rng.uniform(np.log(low), np.log(high), rng.integers(1, 7)))
    return np.round(sizes).astype(np.int64)


def _sums(shapes: _Shapes, power: int) -> _FLOAT:
    return np.array([float((shape.astype(np.float64) ** power).sum()) for shape in shapes])


def _train(model: torch.nn.Module, inputs: torch.Tensor, lengths: Sequence[int]) -> None:
    model(inputs, lengths).backward()
    for parameter in model.parameters():
        parameter.grad = None


def _median_rounds(calls: Sequence[Callable[[], None]], rounds: int) -> _FLOAT:
    """Median seconds of each call on one thread over rounds through all, the first apart."""
    seconds = np.empty((rounds + 1, len(calls)))
    with _one_thread():
        for row in seconds:
            for index, call in enumerate(calls):
                started = time.perf_counter()
                call()
                row[index] = time.perf_counter() - started
    return np.median(seconds[1:], axis=0)


def _errors(times: _Times, seed: int) -> tuple[Calibration, dict[str, Quality]]:
    """The calibration, and the errors of each predictor on the shapes that none was fitted to."""
    seconds = times.measurements.seconds[times.module]
    aside = held_out_rows(len(seconds), 0.5, seed)
    calibration = calibrate(times.measurements, held_out=0.5, seed=seed, hardware=hardware())
    errors = {"calibrated": calibration.fits[0].held_out}
    columns = {"flops_only": times.flops, "tokens_only": times.measurements.amounts[times.count]}
    for predictor, column in columns.items():
        coefficient = fit_times(column[~aside, None], seconds[~aside]).coefficients[0]
        errors[predictor] = prediction_quality(coefficient * column[aside], seconds[aside])
    return calibration, errors


def _records(name: str, data: str, errors: dict[str, Quality]) -> list[Record]:
    return [
        Record(
            experiment=name, data=data, planner=predictor, topology="one core", barrier="none",
            metric=metric, value=value, unit="ratio", n=quality.num,
        )
        for predictor, quality in errors.items()
        for metric, value in (
            ("mape_heldout", quality.mape_with_outliers),
            ("spearman_heldout", quality.spearman),
        )
    ]  # fmt: skip


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
