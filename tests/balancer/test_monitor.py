"""The monitor against streams whose change is known."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from balancer.calibrate import Calibration, Measurements, calibrate
from balancer.calibration.amounts import CONSTANT
from balancer.errors import ArgumentError, StateError
from balancer.monitor import CostMonitor
from balancer.monitoring.drift import DriftDetector
from balancer.monitoring.shifts import ShiftDetector

_INT = NDArray[np.int64]


def _stream(rng: np.random.Generator, num: int) -> tuple[_INT, _INT, _INT]:
    """Tokens, patches and images of a mixture with heavy tails."""
    images = rng.poisson(0.4, num)
    patches = images * rng.integers(100, 5000, num)
    tokens = np.maximum(1, rng.lognormal(5, 1.5, num)).astype(np.int64) + patches // 4
    return tokens, patches, images


def _alarms(detector: ShiftDetector, stream: tuple[_INT, _INT, _INT], batch: int) -> int:
    tokens, patches, images = stream
    alarms = 0
    for start in range(0, len(tokens), batch):
        rows = slice(start, start + batch)
        found = detector.update(tokens=tokens[rows], patches=patches[rows], images=images[rows])
        if found:
            alarms += 1
            detector.reset()
    return alarms


@pytest.mark.parametrize(("batch", "num"), [(1, 20_000), (16, 200_000), (64, 1_000_000)])
def test_an_unchanged_stream_raises_no_alarm(batch: int, num: int) -> None:
    rng = np.random.default_rng(batch)
    assert _alarms(ShiftDetector(), _stream(rng, num), batch) == 0


def test_sorted_steps_of_an_unchanged_stream_raise_no_alarm() -> None:
    rng = np.random.default_rng(0)
    tokens, patches, images = (column.reshape(-1, 256) for column in _stream(rng, 256 * 400))
    order = np.argsort(-tokens, axis=1, kind="stable")
    columns = [np.take_along_axis(c, order, axis=1).ravel() for c in (tokens, patches, images)]
    assert _alarms(ShiftDetector(), (columns[0], columns[1], columns[2]), 256) == 0


def test_the_threshold_bounds_false_alarms_for_the_most_extreme_score() -> None:
    # Lundberg: with E exp(r (2 u - 1 - 0.2)) <= 1, a sum crosses h in less than exp(-r h) of the
    # samples; six sums share the rate. Ties only make the score less extreme.
    rate = 1e-6
    detector = ShiftDetector(false_alarm_rate=rate)
    assert math.sinh(1.26) / 1.26 * math.exp(-1.26 * 0.2) <= 1.0
    assert 6 * math.exp(-1.26 * detector.threshold) == pytest.approx(rate)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("batch", [1, 32])
def test_a_switch_from_short_text_to_many_images_is_found_within_200_samples(
    seed: int, batch: int
) -> None:
    rng = np.random.default_rng(seed)
    monitor = CostMonitor()
    text = rng.integers(20, 300, 4096)
    for start in range(0, 4096, 64):
        part = text[start : start + 64]
        assert monitor.update_samples(tokens=part, patches=0 * part, images=0 * part) == ()
    seen, events = 0, ()
    while not events and seen < 200:
        images = rng.integers(2, 6, batch)
        patches = images * rng.integers(256, 4096, batch)
        tokens = rng.integers(20, 300, batch) + patches // 4
        events = monitor.update_samples(tokens=tokens, patches=patches, images=images)
        seen += batch
    assert [event.kind for event in events] == ["regime_shift"]
    assert seen <= 200
    assert monitor.report.num_samples == 0


def test_every_statistic_starts_anew_at_a_switch() -> None:
    rng = np.random.default_rng(0)
    monitor = CostMonitor(predicted_gain=0.2)
    short = np.full(1000, 50)
    monitor.update_samples(tokens=short, patches=0 * short, images=0 * short)
    for error in rng.normal(0.0, 0.02, 100):
        monitor.update(predicted_s=1.0, observed_s=math.exp(error))
    assert monitor.report.num_observations == 100
    monitor.update_samples(tokens=[5000] * 64, patches=[9000] * 64, images=[4] * 64)
    assert (monitor.report.num_observations, monitor.report.num_samples) == (0, 0)
    assert monitor.report.usable is None
    # Times of the new regime are not compared with those of the old one.
    for error in rng.normal(0.0, 0.02, 100):
        assert monitor.update(predicted_s=1.0, observed_s=1.7 * math.exp(error)) == ()


@pytest.mark.parametrize("kind", ["normal", "laplace"])
def test_unchanged_times_raise_no_drift(kind: str) -> None:
    rng = np.random.default_rng(1)
    errors = rng.normal(0, 0.05, 100_000) if kind == "normal" else rng.laplace(0, 0.05, 100_000)
    detector = DriftDetector()
    assert all(detector.update(error) is None for error in errors.tolist())


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_times_that_move_are_reported_with_their_factor(factor: float) -> None:
    rng = np.random.default_rng(2)
    monitor = CostMonitor(predicted_gain=0.5)
    for error in rng.normal(0.1, 0.05, 500):
        assert monitor.update(predicted_s=2.0, observed_s=2.0 * math.exp(error)) == ()
    steps, events = 0, ()
    while not events and steps < 20:
        slower = factor * math.exp(rng.normal(0.1, 0.05))
        events = monitor.update(predicted_s=2.0, observed_s=2.0 * slower)
        steps += 1
    assert [event.kind for event in events] == ["drift"]
    assert abs(float(events[0].message.split()[2]) / factor - 1) < 0.05
    assert monitor.report.num_observations == 0


def test_single_hiccups_are_no_drift() -> None:
    rng = np.random.default_rng(3)
    detector = DriftDetector()
    errors = rng.normal(0.0, 0.05, 20_000)
    errors[rng.random(20_000) < 0.005] += 2.3
    assert all(detector.update(error) is None for error in errors.tolist())


def test_predictions_worse_than_the_gain_are_called_poor_whatever_their_scale() -> None:
    rng = np.random.default_rng(4)
    scaled, noisy = CostMonitor(predicted_gain=0.2), CostMonitor(predicted_gain=0.2)
    for _ in range(200):
        cost = rng.uniform(1.0, 3.0)
        scaled.update(predicted_s=1e12 * cost, observed_s=cost)
        noisy.update(predicted_s=cost, observed_s=cost * math.exp(rng.normal(0.0, 0.5)))
    assert scaled.report.usable
    assert scaled.report.scale == pytest.approx(1e-12)
    assert scaled.report.mape_rescaled < 0.01
    assert noisy.report.usable is False
    assert [event.kind for event in noisy.events] == ["poor_predictions"]
    assert "may cost more than it saves" in noisy.events[0].message


def _calibration() -> Calibration:
    rng = np.random.default_rng(5)
    lengths = [rng.integers(16, 4096, rng.integers(1, 6)).astype(float) for _ in range(60)]
    tokens = np.array([length.sum() for length in lengths])
    squares = np.array([(length**2).sum() for length in lengths])
    return calibrate(
        Measurements(
            amounts={"tokens": tokens, "tokens_squared": squares},
            seconds={"language": 1e-5 * tokens + 2e-9 * squares + 0.01},
        )
    )


def _observe(monitor: CostMonitor, num: int, *, quadratic: float = 4e-9) -> None:
    rng = np.random.default_rng(6)
    for _ in range(num):
        lengths = rng.integers(16, 4096, rng.integers(1, 6)).astype(float)
        amounts = {"tokens": lengths.sum(), "tokens_squared": (lengths**2).sum()}
        seconds = 1e-5 * amounts["tokens"] + quadratic * amounts["tokens_squared"] + 0.01
        monitor.update(amounts=amounts, observed_s=seconds * math.exp(rng.normal(0, 0.02)))


def test_coefficients_follow_what_is_observed() -> None:
    monitor = CostMonitor(_calibration(), predicted_gain=0.5)
    _observe(monitor, 600)
    latest = monitor.refit().fits[0]
    assert latest.coefficients["tokens_squared"] == pytest.approx(4e-9, rel=0.05)
    assert latest.coefficients["tokens"] == pytest.approx(1e-5, rel=0.1)
    assert any("during training" in note for note in latest.notes)


def test_coefficients_stay_where_the_stream_says_nothing_of_them() -> None:
    calibration = _calibration()
    monitor = CostMonitor(calibration, predicted_gain=0.5)
    assert monitor.refit() == calibration
    seconds = 1e-5 * 512 + 2e-9 * 512**2 + 0.01
    for _ in range(200):
        monitor.update(amounts={"tokens": 512, "tokens_squared": 512**2}, observed_s=seconds)
    latest = monitor.refit().fits[0].coefficients
    for name, value in calibration.fits[0].coefficients.items():
        assert latest[name] == pytest.approx(value, rel=0.02)


def test_a_constant_of_several_modules_is_shared_out_as_it_was() -> None:
    one = _calibration()
    vision = replace(
        one.fits[0],
        target="vision",
        coefficients={"patches": 1e-6, CONSTANT: 0.03},
        standard_errors={"patches": 0.0, CONSTANT: 0.0},
    )
    monitor = CostMonitor(replace(one, fits=(vision, one.fits[0])), predicted_gain=0.5)
    rng = np.random.default_rng(7)
    for _ in range(300):
        tokens, patches = rng.integers(100, 8000), rng.integers(0, 20_000)
        amounts = {"patches": patches, "tokens": tokens, "tokens_squared": tokens**2 / 3}
        seconds = 1e-6 * patches + 1e-5 * tokens + 2e-9 * tokens**2 / 3 + 0.08
        monitor.update(amounts=amounts, observed_s=float(seconds))
    latest = monitor.refit()
    assert latest.constant_s == pytest.approx(0.08, rel=0.05)
    assert latest.fits[0].coefficients[CONSTANT] == pytest.approx(0.06, rel=0.05)


def test_memory_and_state_do_not_grow_and_a_loaded_monitor_goes_on_the_same() -> None:
    rng = np.random.default_rng(8)
    monitor = CostMonitor(_calibration(), predicted_gain=0.5)
    _observe(monitor, 300)
    sizes = []
    for _ in range(2):
        for start in range(0, 20_000, 500):
            tokens, patches, images = _stream(rng, 500)
            monitor.update_samples(tokens=tokens, patches=patches, images=images)
            monitor.update(predicted_s=1.0, observed_s=1.0 + 1e-6 * start)
        sizes.append(len(json.dumps(monitor.state_dict())))
    assert max(sizes) < 8192
    assert sizes[1] < 1.2 * sizes[0]
    other = CostMonitor(_calibration(), predicted_gain=0.5)
    other.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    _observe(monitor, 50)
    _observe(other, 50)
    assert other.state_dict() == monitor.state_dict()
    assert other.refit() == monitor.refit()


def test_a_state_of_another_calibration_is_refused() -> None:
    with pytest.raises(StateError, match="build it with the calibration"):
        CostMonitor().load_state_dict(CostMonitor(_calibration()).state_dict())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observed_s": 0.0, "predicted_s": 1.0}, "observed_s is 0.0"),
        ({"observed_s": math.nan, "predicted_s": 1.0}, "observed_s is nan"),
        ({"observed_s": 1.0, "predicted_s": math.inf}, "predicted_s is inf"),
        ({"observed_s": 1.0}, "predicted_s is None"),
        ({"observed_s": 1.0, "amounts": {"tokens": 1}}, "no calibration to refit"),
    ],
)
def test_impossible_observations_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        CostMonitor().update(**arguments)  # type: ignore[arg-type]


def test_arguments_outside_their_range_and_unequal_columns_are_refused() -> None:
    with pytest.raises(ArgumentError, match="predicted_gain is 0"):
        CostMonitor(predicted_gain=0.0)
    with pytest.raises(ArgumentError, match="patches has shape"):
        CostMonitor().update_samples(tokens=[1, 2], patches=[1], images=[0, 0])
    with pytest.raises(ArgumentError, match="images has a negative"):
        CostMonitor().update_samples(tokens=[1], patches=[1], images=[-1])
    with pytest.raises(ArgumentError, match="calibration is None"):
        CostMonitor().refit()
