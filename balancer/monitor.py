"""CostMonitor: predicted beside observed times while a model trains."""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from balancer.calibration.result import Calibration
from balancer.errors import ArgumentError, StateError
from balancer.monitoring.drift import DriftDetector
from balancer.monitoring.error_average import ErrorAverage
from balancer.monitoring.events import EventKind, MonitorEvent, MonitorReport
from balancer.monitoring.online import OnlineFit
from balancer.monitoring.shifts import ShiftDetector

__all__ = ["CostMonitor", "EventKind", "MonitorEvent", "MonitorReport"]

_FORMAT = 1
_LEAST = 30  # observations before predictions are judged
_HUBER = 2.5  # standard deviations beyond which an observation counts for less in the refit
_EVENTS_KEPT = 100


class CostMonitor:
    """Watches predictions in training: their error, drift, shifts of the data, better coefficients.

    Memory is O(1), and the state is a few kilobytes. Statistics start anew at every drift and every
    regime shift. Plans must be equal on all ranks: observe on one rank (or the same gathered
    times on all), and give every rank the coefficients of that one, at an epoch's start.

    Args:
        calibration: Coefficients that `refit` starts from; not needed for anything else.
        predicted_gain: Share of the step time that balancing is predicted to save. Predictions
            whose rescaled error is larger are too poor to balance on.
        half_life: Observations after which one counts half.
        false_alarm_rate: Bound on false alarms an observation, and a sample.

    Raises:
        ArgumentError: An argument is outside its range.

    Example:
        >>> monitor = CostMonitor(predicted_gain=0.3)
        >>> for heavy in [0, 1] * 50:  # FLOPs predict, seconds are observed
        ...     events = monitor.update(predicted_s=1e15 * (1 + heavy), observed_s=0.6 + heavy)
        >>> monitor.report.usable, round(monitor.report.mape_rescaled, 2)
        (True, 0.14)
    """

    def __init__(
        self,
        calibration: Calibration | None = None,
        *,
        predicted_gain: float = 0.1,
        half_life: float = 500.0,
        false_alarm_rate: float = 1e-6,
    ) -> None:
        for name, value, top in (
            ("predicted_gain", predicted_gain, 1.0),
            ("false_alarm_rate", false_alarm_rate, 1.0),
            ("half_life", half_life, math.inf),
        ):
            if not 0 < value < top:
                raise ArgumentError(f"{name} is {value!r}; allowed: above 0 and below {top:g}")
        self.predicted_gain = predicted_gain
        self._errors = ErrorAverage(half_life=half_life)
        self._drift = DriftDetector(false_alarm_rate=false_alarm_rate)
        self._shift = ShiftDetector(false_alarm_rate=false_alarm_rate)
        self._online = None if calibration is None else OnlineFit(calibration, half_life=half_life)
        self._events: deque[MonitorEvent] = deque(maxlen=_EVENTS_KEPT)
        self._num_observations = 0
        self._num_samples = 0
        self._usable: bool | None = None

    @property
    def events(self) -> tuple[MonitorEvent, ...]:
        """The latest events, 100 at most."""
        return tuple(self._events)

    @property
    def report(self) -> MonitorReport:
        """Errors of this regime."""
        return MonitorReport(
            num_observations=self._errors.num,
            num_samples=self._shift.num_samples,
            scale=self._errors.scale,
            mape=self._errors.mape,
            mape_rescaled=self._errors.mape_rescaled,
            usable=self._usable,
        )

    def update(
        self,
        *,
        observed_s: float,
        predicted_s: float | None = None,
        amounts: Mapping[str, float] | None = None,
    ) -> tuple[MonitorEvent, ...]:
        """Take one observed time, of a step or of a microbatch.

        Give either always steps or always microbatches. A time that is not finite and above zero
        is refused: leave such a step out.

        Args:
            observed_s: Seconds it took.
            predicted_s: What the cost model said, in any unit; from the calibration when `None`.
            amounts: Amounts of the microbatch, for `refit`.

        Returns:
            What changed with this observation.

        Raises:
            ArgumentError: A time is impossible, or nothing predicts it.
        """
        if amounts is not None and self._online is None:
            raise ArgumentError("amounts is given, but the monitor has no calibration to refit")
        if predicted_s is None:
            predicted_s = self._predict(amounts)
        for name, value in (("observed_s", observed_s), ("predicted_s", predicted_s)):
            if not (math.isfinite(value) and value > 0):
                raise ArgumentError(f"{name} is {value!r}; allowed: finite numbers above 0")
        self._num_observations += 1
        log_ratio = math.log(observed_s / predicted_s)
        emphasis = self._emphasis(log_ratio)
        events = self._check_drift(log_ratio)
        if not events:
            self._errors.update(observed_s / predicted_s)
            if amounts is not None and self._online is not None:
                self._online.update(amounts, observed_s, emphasis=emphasis)
            events = self._judge()
        self._events.extend(events)
        return events

    def update_samples(
        self, *, tokens: ArrayLike, patches: ArrayLike, images: ArrayLike
    ) -> tuple[MonitorEvent, ...]:
        """Take the amounts of the samples of a step, all ranks, in any order.

        Returns:
            A regime shift, or nothing.

        Raises:
            ArgumentError: Lengths differ, or an amount is negative or not finite.
        """
        column = self._shift.update(tokens=tokens, patches=patches, images=images)
        self._num_samples += np.atleast_1d(np.asarray(tokens)).size
        if column is None:
            return ()
        event = self._event(
            "regime_shift",
            f"samples are of another kind than before, first in {column}: statistics start anew; "
            "check limits and plan with costs of these samples",
        )
        self._shift.reset()
        self._drift.reset()
        self._clear()
        self._events.append(event)
        return (event,)

    def refit(self) -> Calibration:
        """The calibration, brought up to date by the amounts and times of this regime.

        Raises:
            ArgumentError: The monitor has no calibration.
            BalancerError: scipy is not installed.
        """
        if self._online is None:
            raise ArgumentError("calibration is None; give CostMonitor a calibration to refit")
        return self._online.refit()

    def _predict(self, amounts: Mapping[str, float] | None) -> float:
        if amounts is None or self._online is None:
            raise ArgumentError(
                "predicted_s is None; give it, or amounts with a monitor that has a calibration"
            )
        arrays = {name: np.array([float(value)]) for name, value in amounts.items()}
        return float(self._online.calibration.predict(arrays)[0])

    def _emphasis(self, log_ratio: float) -> float:
        """Huber weight of an observation for the refit."""
        distance = abs(log_ratio - self._drift.usual_log_ratio)
        return min(1.0, _HUBER * self._drift.spread / distance) if distance else 1.0

    def _check_drift(self, log_ratio: float) -> tuple[MonitorEvent, ...]:
        ratio = self._drift.update(log_ratio)
        if ratio is None:
            return ()
        event = self._event(
            "drift",
            f"times are {ratio:.2f} times what they were for the same predictions: statistics "
            "start anew; look for a slower device or a changed configuration, and calibrate "
            "again if the change differs between modules",
        )
        self._drift.reset()
        self._clear()
        return (event,)

    def _judge(self) -> tuple[MonitorEvent, ...]:
        if self._errors.num < _LEAST:
            return ()
        error = self._errors.mape_rescaled
        # A verdict is changed only by an error clearly on the other side of the gain.
        bar = self.predicted_gain * (0.9 if self._usable is False else 1.0)
        usable, before = error <= bar, self._usable
        self._usable = usable
        if usable is before or (usable and before is None):
            return ()
        kind: EventKind = "good_predictions" if usable else "poor_predictions"
        advice = (
            "balancing on them is worth it again"
            if usable
            else "balancing on them may cost more than it saves: calibrate, or check the token rule"
        )
        return (
            self._event(
                kind,
                f"predictions are {error:.1%} off beside a predicted gain of "
                f"{self.predicted_gain:.1%}: {advice}",
            ),
        )

    def _event(self, kind: EventKind, message: str) -> MonitorEvent:
        return MonitorEvent(
            kind=kind,
            observation=self._num_observations,
            sample=self._num_samples,
            message=message,
        )

    def _clear(self) -> None:
        """Forget the errors and the observations of the refit."""
        self._errors.reset()
        self._usable = None
        if self._online is not None:
            self._online.reset()

    def state_dict(self) -> dict[str, Any]:
        """State as plain numbers and lists, a few kilobytes; events are not part of it."""
        return {
            "format": _FORMAT,
            "num_observations": self._num_observations,
            "num_samples": self._num_samples,
            "errors": self._errors.state_dict(),
            "usable": self._usable,
            "drift": self._drift.state_dict(),
            "shift": self._shift.state_dict(),
            "online": None if self._online is None else self._online.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of a monitor with the same calibration.

        Raises:
            StateError: The state is of another format, or of other coefficients.
        """
        own = None if self._online is None else self._online.state_dict()["names"]
        given = state.get("online") and state["online"]["names"]
        if state.get("format") != _FORMAT or own != given:
            raise StateError(
                f"state has format {state.get('format')} and coefficients {given}; this monitor "
                f"has format {_FORMAT} and {own}: build it with the calibration it was saved with"
            )
        self._num_observations = state["num_observations"]
        self._num_samples = state["num_samples"]
        self._errors.load_state_dict(state["errors"])
        self._usable = state["usable"]
        self._drift.load_state_dict(state["drift"])
        self._shift.load_state_dict(state["shift"])
        if self._online is not None:
            self._online.load_state_dict(state["online"])
