"""Real times of a small encoder and a small decoder, beside what cost models predict of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from balancer.calibrate import calibrate
from balancer.calibration.fit import fit_times
from balancer.calibration.measurements import Measurements
from balancer.calibration.quality import held_out_rows
from balancer.flops.dimensions import LanguageDims, VisionDims
from balancer.flops.forward import language_flops, vision_flops
from benchmarks.measure import hardware
from benchmarks.pricing_records import Predicted
from benchmarks.tiny_models import Decoder, VisionTransformer

__all__ = ["DECODER", "VIT", "time_decoder", "time_predictions", "time_vit"]

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


def time_predictions(
    *, num_shapes: int = 80, repeats: int = 11, seed: int = 0, quick: bool = False
) -> list[Predicted]:
    """Calibrated coefficients, FLOPs alone and counts alone on shapes they were not fitted to.

    Forward and backward of packed microbatches of random samples on one thread; the median CPU
    time of the repeats, which go round all shapes, so that a slow moment hits different shapes.
    Every predictor is fitted to the same half of the shapes; FLOPs and counts get one coefficient
    each, as planners use them.

    Args:
        num_shapes: Microbatches of each model.
        repeats: Timed rounds.
        seed: Seed of the shapes and of the half that is held out.
        quick: Small microbatches and few rounds, to see that it runs.
    """
    vit, decoder, largest = VIT, DECODER, 1024
    if quick:
        vit, decoder, largest = replace(VIT, depth=1), replace(DECODER, depth=1), 576
        num_shapes, repeats = 60, 2
    timed = (
        time_vit(num_shapes, repeats, dims=vit, largest=largest, seed=seed),
        time_decoder(num_shapes, repeats, dims=decoder, largest=largest, seed=seed),
    )
    return [_predicted(times, seed) for times in timed]


def time_vit(
    num_shapes: int, rounds: int, *, dims: VisionDims = VIT, largest: int = 1024, seed: int = 0
) -> _Times:
    """Times of microbatches of 1 to 6 images of 64 to `largest` patches."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = VisionTransformer(dims)
    sides = [_lengths(rng, 8, int(largest**0.5)) for _ in range(num_shapes)]
    shapes = [side**2 for side in sides]
    calls = [
        partial(_train, model, torch.randn(int(shape.sum()), dims.patch_values), shape.tolist())
        for shape in shapes
    ]
    flops = [vision_flops(dims, np.ones_like(side), side, side).sum() for side in sides]
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


def time_decoder(
    num_shapes: int,
    rounds: int,
    *,
    dims: LanguageDims = DECODER,
    largest: int = 1024,
    seed: int = 0,
) -> _Times:
    """Times of microbatches of 1 to 6 samples of 32 to `largest` tokens."""
    rng = np.random.default_rng(seed + 1)
    torch.manual_seed(seed)
    model = Decoder(dims)
    shapes = [_lengths(rng, 32, largest) for _ in range(num_shapes)]
    calls = [
        partial(_train, model, torch.randint(dims.vocab_size, (int(shape.sum()),)), shape.tolist())
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
        flops=_BACKWARD * np.array([language_flops(dims, shape).sum() for shape in shapes]),
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
    """Median CPU seconds of each call, on one thread, over rounds through all; the first apart."""
    seconds = np.empty((rounds + 1, len(calls)))
    with _one_thread():
        for row in seconds:
            for index, call in enumerate(calls):
                started = time.thread_time()
                call()
                row[index] = time.thread_time() - started
    return np.median(seconds[1:], axis=0)


def _predicted(times: _Times, seed: int) -> Predicted:
    """Seconds of the shapes held out by predictors that saw only the others."""
    measured = times.measurements
    seconds = measured.seconds[times.module]
    aside = held_out_rows(len(seconds), 0.5, seed)
    calibration = calibrate(_rows(measured, ~aside), seed=seed, hardware=hardware())
    predicted = {"calibrated": calibration.predict(_rows(measured, aside).amounts)}
    columns = {"flops_only": times.flops, "tokens_only": measured.amounts[times.count]}
    for predictor, column in columns.items():
        fit = fit_times(column[~aside, None], seconds[~aside])
        predicted[predictor] = fit.coefficients[0] * column[aside]
    return Predicted(data=times.data, seconds=seconds[aside], predicted=predicted)


def _rows(measured: Measurements, rows: NDArray[np.bool_]) -> Measurements:
    return Measurements(
        amounts={name: column[rows] for name, column in measured.amounts.items()},
        seconds={name: column[rows] for name, column in measured.seconds.items()},
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
