"""Properties of calibration and of limits made from memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.calibrate import Measurements, calibrate
from balancer.calibration.amounts import CONSTANT
from balancer.calibration.fit import fit_times
from balancer.calibration.quality import spearman
from balancer.errors import ArgumentError
from balancer.heaviest import heaviest_first, microbatch_bytes
from balancer.memory import MemoryModel, limits_for
from balancer.planner import plan_step
from balancer.topology import Limits, Topology
from tests.properties.planning import costs as any_costs

_SEEDS = st.integers(0, 2**32 - 1)


def _lengths(seed: int, num: int = 60) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    samples = [np.exp(rng.uniform(3, 9, rng.integers(1, 7))) for _ in range(num)]
    return {
        "tokens": np.array([sample.sum() for sample in samples]),
        "tokens_squared": np.array([(sample**2).sum() for sample in samples]),
    }


@given(
    _SEEDS,
    st.floats(1e-7, 1e-3),
    st.floats(0.0, 4.0),
    st.floats(0.0, 4.0),
)
def test_true_coefficients_come_back(seed, linear, quadratic, constant):
    """Times that are exactly linear in the amounts give the coefficients they were made of."""
    amounts = _lengths(seed)
    truth = {
        "tokens": linear,
        "tokens_squared": quadratic * linear / 3000,
        CONSTANT: constant * linear * 3000,
    }
    seconds = truth[CONSTANT] + sum(truth[name] * amounts[name] for name in amounts)
    found = calibrate(Measurements(amounts=amounts, seconds={"language": seconds}))
    for name, value in truth.items():
        assert found.fits[0].coefficients[name] == pytest.approx(
            value, rel=1e-5, abs=1e-6 * truth["tokens"]
        )


@given(_SEEDS, st.floats(1e-6, 1e6))
def test_the_unit_of_time_does_not_matter(seed, factor):
    """Times in another unit give coefficients in that unit and the same errors."""
    amounts = _lengths(seed)
    rng = np.random.default_rng(seed)
    seconds = (1e-5 * amounts["tokens"] + 1e-9 * amounts["tokens_squared"] + 0.02) * np.exp(
        0.05 * rng.normal(size=60)
    )
    one, other = (
        calibrate(Measurements(amounts=amounts, seconds={"language": scale * seconds})).fits[0]
        for scale in (1.0, factor)
    )
    for name, value in one.coefficients.items():
        assert other.coefficients[name] == pytest.approx(factor * value, rel=1e-6, abs=1e-300)
    assert other.held_out.mape == pytest.approx(one.held_out.mape, rel=1e-6)


@given(_SEEDS, st.integers(2, 40), st.integers(1, 4))
def test_coefficients_are_never_negative(seed, num, columns):
    """Whatever the data, no coefficient is below zero and none is NaN."""
    rng = np.random.default_rng(seed)
    design = rng.lognormal(0, 2, (num, columns))
    fit = fit_times(design, rng.lognormal(0, 2, num))
    assert (fit.coefficients >= 0).all()
    assert np.isfinite(fit.coefficients).all()


@given(_SEEDS, st.integers(1, 2))
def test_samples_of_few_lengths_are_refused(seed, num_lengths):
    """Microbatches of samples of one length cannot tell tokens from their squares."""
    rng = np.random.default_rng(seed)
    count = rng.integers(1, 9, 50).astype(float)
    length = float(rng.integers(10, 5000))
    tokens = count * length if num_lengths == 1 else np.where(count > 4, length, 2 * length)
    squares = tokens * length if num_lengths == 1 else tokens**2
    amounts = {"tokens": tokens, "tokens_squared": squares}
    with pytest.raises(ArgumentError, match="tokens, tokens_squared"):
        calibrate(Measurements(amounts=amounts, seconds={"language": 0.01 + 1e-5 * tokens}))


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=30), _SEEDS)
def test_rank_correlation_is_that_of_scipy(values, seed):
    """Spearman's rho equals scipy's, ties included, and is NaN where one side is constant."""
    from scipy.stats import spearmanr

    first = np.array(values, float)
    second = np.random.default_rng(seed).integers(0, 4, len(values)).astype(float)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        assert np.isnan(spearman(first, second))
    else:
        assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic)


@st.composite
def _memory_models(draw):
    number = st.floats(0.0, 100.0)
    return MemoryModel(
        bytes_per_token=draw(st.floats(1.0, 100.0)),
        bytes_per_patch=draw(number),
        bytes_per_image=draw(number),
        fixed_bytes=draw(number),
    )


@given(any_costs(), _memory_models(), st.floats(1.0, 20.0), st.floats(0.0, 0.5))
def test_all_limits_at_once_fit_the_memory(costs, model, times, margin):
    """A microbatch that reaches every limit takes no more than the memory less its margin."""
    one = model.bytes(tokens=1, patches=1, images=1)
    largest = model.bytes(tokens=costs.tokens, patches=costs.patches, images=costs.images).max()
    memory = float(max(one, times * largest) / (1 - margin)) * 1.001
    limits = limits_for(memory, model, costs=costs, margin=margin)
    given_limits = limits.given
    full = model.bytes(**{name: given_limits.get(name, 0) for name in model.per_amount})
    assert full <= memory * (1 - margin) * (1 + 1e-12)


@given(any_costs(min_samples=9), _memory_models(), st.integers(1, 3), st.integers(1, 3))
def test_heaviest_first_keeps_every_microbatch(costs, model, dp_size, num_microbatches):
    """Reordering leaves the multiset of microbatches of every rank as it was, heaviest first."""
    topology = Topology(dp_size=dp_size, num_microbatches=num_microbatches, limits=Limits())
    plan = plan_step(costs, topology)
    ordered = heaviest_first(plan, costs, model)
    for rank in range(dp_size):
        before = sorted(tuple(ids.tolist()) for ids in plan.for_rank(rank))
        assert before == sorted(tuple(ids.tolist()) for ids in ordered.for_rank(rank))
    sizes = microbatch_bytes(ordered, costs, model).reshape(-1, dp_size).max(axis=1)
    assert (np.diff(sizes) <= 0).all()
