"""Calibration and monitor on data whose truth is known: outliers, and a switch of the stream."""

import numpy as np

from balancer.calibrate import Measurements, calibrate
from balancer.monitoring.shifts import ShiftDetector
from benchmarks.measure import Record
from benchmarks.pricing_records import pricing_record

__all__ = ["known_records"]

_TRUTH = {"patches": 2e-3, "patches_squared": 1e-6, "constant": 5.0}


def known_records(
    name: str, *, num_seeds: int = 50, num_samples: int = 1_000_000, quick: bool = False
) -> list[Record]:
    """Worst coefficient under noise and outliers, and how soon a switch of the stream is found.

    400 microbatches of 1 to 8 images take `1e-6 p^2 + 2e-3 p + 5` seconds with 5 % noise, 3 % of
    them ten times as long. The stream switches from text of 20 to 300 tokens to samples of 2 to 5
    images; false alarms are counted on an unchanged mixture with heavy tails.

    Args:
        name: Name of the experiment in the records.
        num_seeds: Fits, and switches.
        num_samples: Samples of the unchanged stream.
        quick: Fewer of all.
    """
    seeds, samples = (4, 50_000) if quick else (num_seeds, num_samples)
    records = []
    for planner, filtered in (("two filters", True), ("no filter", False)):
        errors = [_worst_error(seed, filtered) for seed in range(seeds)]
        for metric, value in (
            ("coefficient_error_median", float(np.median(errors))),
            ("coefficient_error_worst", max(errors)),
        ):
            records.append(pricing_record(name, "known times", planner, metric, value, n=seeds))
    delays = [_delay(seed) for seed in range(seeds)]
    alarms = _false_alarms(samples)
    worst = max(delays)
    return [
        *records,
        pricing_record(name, "switch", "monitor", "delay_worst", worst, unit="samples", n=seeds),
        pricing_record(
            name, "mixture", "monitor", "false_alarms", alarms, unit="alarms", n=samples
        ),
    ]


def _worst_error(seed: int, filtered: bool) -> float:
    """Largest relative error of the three coefficients."""
    rng = np.random.default_rng(seed)
    sizes = [np.exp(rng.uniform(np.log(64), np.log(16384), rng.integers(1, 9))) for _ in range(400)]
    patches = np.array([size.sum() for size in sizes])
    squares = np.array([(size**2).sum() for size in sizes])
    seconds = 1e-6 * squares + 2e-3 * patches + 5.0
    seconds = seconds * np.exp(0.05 * rng.normal(size=400))
    seconds[rng.permutation(400)[:12]] *= 10.0
    measured = Measurements(
        amounts={"patches": patches, "patches_squared": squares}, seconds={"vision": seconds}
    )
    found = calibrate(measured, seed=seed, filter_outliers=filtered).fits[0].coefficients
    return max(abs(found[key] / value - 1.0) for key, value in _TRUTH.items())


def _delay(seed: int) -> int:
    """Samples after a switch from short text to several images until it is found, one by one."""
    rng = np.random.default_rng(seed)
    detector = ShiftDetector()
    text = rng.integers(20, 300, 5000)
    detector.update(tokens=text, patches=0 * text, images=0 * text)
    delay, found = 0, None
    while found is None:
        images = int(rng.integers(2, 6))
        patches = images * int(rng.integers(256, 4096))
        tokens = int(rng.integers(20, 300)) + patches // 4
        found = detector.update(tokens=[tokens], patches=[patches], images=[images])
        delay += 1
    return delay


def _false_alarms(num_samples: int, batch: int = 8) -> int:
    """Alarms on an unchanged stream, `batch` samples at a time."""
    rng = np.random.default_rng(0)
    detector, alarms = ShiftDetector(), 0
    for _ in range(num_samples // batch):
        images = rng.poisson(0.4, batch)
        patches = images * rng.integers(100, 5000, batch)
        tokens = rng.lognormal(5, 1.5, batch).astype(np.int64) + 1 + patches // 4
        if detector.update(tokens=tokens, patches=patches, images=images) is not None:
            alarms += 1
            detector.reset()
    return alarms
