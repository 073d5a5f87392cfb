"""Calibration: known coefficients come back, and what cannot be known is refused."""

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from balancer.calibrate import Calibration, Measurements, calibrate
from balancer.calibration.amounts import microbatch_amounts, sample_amounts
from balancer.calibration.cost_model import CalibratedCost
from balancer.calibration.identify import least_measurements
from balancer.cost import evaluate_costs
from balancer.errors import ArgumentError, BalancerError, SampleError
from balancer.samples import SampleTable
from balancer.tokens import token_rule

_TRUTH = {"patches_squared": 1e-6, "patches": 2e-3, "constant": 5.0}


def _images(rng: np.random.Generator, num: int) -> dict[str, NDArray[np.float64]]:
    """Patches and their squares of microbatches of 1 to 8 images of 64 to 16,384 patches."""
    sizes = [np.exp(rng.uniform(np.log(64), np.log(16384), rng.integers(1, 9))) for _ in range(num)]
    return {
        "patches": np.array([size.sum() for size in sizes]),
        "patches_squared": np.array([(size**2).sum() for size in sizes]),
    }


def _measured(
    *, num: int, noise: float, outliers: float = 0.0, seed: int = 0, factor: float = 10.0
) -> Measurements:
    rng = np.random.default_rng(seed)
    amounts = _images(rng, num)
    seconds = 1e-6 * amounts["patches_squared"] + 2e-3 * amounts["patches"] + 5.0
    seconds = seconds * np.exp(noise * rng.normal(size=num))
    seconds[rng.random(num) < outliers] *= factor
    return Measurements(amounts=amounts, seconds={"vision": seconds})


def _worst(calibration: Calibration, truth: dict[str, float] = _TRUTH) -> float:
    found = calibration.fits[0].coefficients
    return max(abs(found[name] / value - 1) for name, value in truth.items())


def _language(num: int = 40, *, seed: int = 0) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    lengths = [rng.integers(16, 4096, rng.integers(1, 6)).astype(float) for _ in range(num)]
    return {
        "tokens": np.array([length.sum() for length in lengths]),
        "tokens_squared": np.array([(length**2).sum() for length in lengths]),
    }


@pytest.mark.parametrize("seed", range(5))
def test_coefficients_come_back_within_a_tenth_under_two_percent_noise(seed: int) -> None:
    assert _worst(calibrate(_measured(num=60, noise=0.02, seed=seed))) < 0.10


@pytest.mark.parametrize("factor", [10.0, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_the_filter_keeps_outliers_from_pulling_the_coefficients(seed: int, factor: float) -> None:
    measured = _measured(num=400, noise=0.05, outliers=0.03, seed=seed, factor=factor)
    filtered = calibrate(measured, seed=seed)
    assert _worst(filtered) < 0.05
    assert filtered.fits[0].held_out.mape < 0.06
    assert 4 <= filtered.fits[0].num_outliers <= 30


def test_without_the_filter_outliers_make_the_fit_visibly_worse() -> None:
    measured = _measured(num=400, noise=0.05, outliers=0.03)
    plain = calibrate(measured, filter_outliers=False)
    filtered = calibrate(measured)
    assert _worst(plain) > 4 * _worst(filtered)
    assert plain.fits[0].held_out.mape > 2 * filtered.fits[0].held_out.mape


def test_held_out_errors_count_outliers_apart() -> None:
    quality = calibrate(_measured(num=400, noise=0.02, outliers=0.05)).fits[0].held_out
    assert quality.num_outliers > 0
    assert quality.mape < 0.03 < quality.mape_with_outliers
    assert quality.r2 > 0.99


def test_exact_times_give_exact_coefficients_and_no_outliers() -> None:
    fit = calibrate(_measured(num=40, noise=0.0)).fits[0]
    assert {k: fit.coefficients[k] for k in _TRUTH} == pytest.approx(_TRUTH, rel=1e-6)
    assert (fit.num_outliers, fit.dropped) == (0, {})


def test_coefficients_are_never_negative_and_a_note_names_those_at_zero() -> None:
    amounts = _language(60)
    seconds = 0.01 + 1e-5 * amounts["tokens"] - 1e-10 * amounts["tokens_squared"]
    fit = calibrate(Measurements(amounts=amounts, seconds={"language": seconds})).fits[0]
    assert fit.coefficients["tokens_squared"] == 0.0
    assert any("tokens_squared" in note for note in fit.notes)


def test_a_model_of_the_wrong_form_says_so() -> None:
    amounts = _language(80)
    seconds = 1e-9 * amounts["tokens_squared"] + 1e-4
    measured = Measurements(amounts={"tokens": amounts["tokens"]}, seconds={"language": seconds})
    fit = calibrate(measured).fits[0]
    assert fit.held_out.mape > 0.15
    assert "do not explain" in " ".join(fit.notes)


def test_modules_timed_together_are_told_apart_by_their_amounts() -> None:
    rng = np.random.default_rng(3)
    amounts = _language(120) | _images(rng, 120)
    seconds = 1e-5 * amounts["tokens"] + 2e-9 * amounts["tokens_squared"] + 0.02
    seconds = seconds + 2e-6 * amounts["patches"] + 1e-10 * amounts["patches_squared"]
    measured = Measurements(
        amounts=amounts, seconds={"total": seconds * np.exp(0.01 * rng.normal(size=120))}
    )
    calibration = calibrate(measured)
    own = calibration.module_coefficients
    assert list(own) == ["vision", "language"]
    assert own["language"]["tokens"] == pytest.approx(1e-5, rel=0.1)
    assert own["vision"]["patches"] == pytest.approx(2e-6, rel=0.1)


def test_rows_that_do_not_time_the_work_are_dropped_by_reason() -> None:
    amounts = _language(40)
    seconds = 1e-5 * amounts["tokens"] + 2e-9 * amounts["tokens_squared"] + 0.01
    wait = np.zeros(40)
    flops = np.full(40, 1e9)
    seconds[0], seconds[1], wait[2], flops[3] = np.nan, -1.0, 0.5 * seconds[2], 1e15
    measured = Measurements(
        amounts=amounts, seconds={"language": seconds}, wait_seconds=wait, flops=flops
    )
    fit = calibrate(measured, peak_flops_per_s=1e15).fits[0]
    assert fit.dropped == {"no time": 2, "waited": 1, "faster than the device": 1}
    assert fit.num_rows == 36


@pytest.mark.parametrize(
    ("amounts", "words"),
    [
        ({"tokens": [512.0] * 40, "tokens_squared": [512.0**2] * 40}, ["512 in every row"]),
        (  # samples of one length: only their number varies
            {
                "tokens": [512.0 * (1 + i % 8) for i in range(40)],
                "tokens_squared": [512.0**2 * (1 + i % 8) for i in range(40)],
            },
            ["tokens, tokens_squared", "three lengths"],
        ),
        (  # all lengths alike within a percent
            {
                "tokens": [512.0 + i % 6 for i in range(40)],
                "tokens_squared": [(512.0 + i % 6) ** 2 for i in range(40)],
            },
            ["tokens", "constant", "one sample up to as many as fit"],
        ),
        ({"tokens": [0.0] * 39 + [0.0], "tokens_squared": [1.0] * 40}, ["tokens = 0"]),
    ],
)
def test_what_the_data_cannot_identify_is_refused_with_what_to_measure(
    amounts: dict[str, list[float]], words: list[str]
) -> None:
    columns = {name: np.array(values) for name, values in amounts.items()}
    rng = np.random.default_rng(0)
    seconds = 0.01 + 1e-5 * columns["tokens"] + 1e-9 * columns["tokens_squared"]
    seconds = seconds * np.exp(0.02 * rng.normal(size=40))
    with pytest.raises(ArgumentError) as caught:
        calibrate(Measurements(amounts=columns, seconds={"language": seconds}))
    for word in words:
        assert word in str(caught.value)


def test_images_of_one_size_cannot_tell_a_patch_from_an_image() -> None:
    count = np.arange(1.0, 41.0) % 9 + 1
    amounts = {"patches": 256 * count, "patches_squared": 65536 * count, "images": count}
    measured = Measurements(amounts=amounts, seconds={"vision": 0.01 + 0.002 * count})
    with pytest.raises(ArgumentError, match=r"patches, patches_squared, images.*three sizes"):
        calibrate(measured)


def test_too_few_measurements_are_refused_with_how_many_more() -> None:
    amounts = {name: column[:7] for name, column in _language().items()}
    measured = Measurements(amounts=amounts, seconds={"language": 1e-5 * amounts["tokens"]})
    with pytest.raises(ArgumentError, match=r"have 7 usable rows.*measure 5 more"):
        calibrate(measured)
    assert least_measurements(3) == 12


def test_a_default_is_kept_with_a_warning_where_the_data_cannot_identify() -> None:
    default = calibrate(_measured(num=60, noise=0.0))
    flat = Measurements(
        amounts={"patches": np.full(30, 256.0), "patches_squared": np.full(30, 65536.0)},
        seconds={"vision": np.full(30, 5.6)},
    )
    with pytest.warns(UserWarning, match="cannot tell apart.*default calibration is kept"):
        assert calibrate(flat, default=default) is default


def test_a_saved_calibration_is_readable_and_loads_the_same(tmp_path: Path) -> None:
    calibration = calibrate(
        _measured(num=60, noise=0.02), hardware="one GPU", versions={"torch": "2.5"}
    )
    path = tmp_path / "calibration.json"
    calibration.save(path)
    assert Calibration.load(path) == calibration
    content = json.loads(path.read_text())
    assert content["hardware"] == "one GPU"
    assert {"numpy", "scipy", "python", "torch"} <= set(content["versions"])
    entry = content["fits"][0]["coefficients"]["patches_squared"]
    assert entry["unit"] == "s/patch^2"
    assert content["fits"][0]["held_out"]["num"] == 15


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 99}'])
def test_a_file_that_is_not_a_calibration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(ArgumentError):
        Calibration.load(path)


def _table() -> SampleTable:
    rng = np.random.default_rng(0)
    sides = [rng.integers(100, 1200, (2, rng.integers(0, 4))) for _ in range(200)]
    return SampleTable.from_arrays(
        text_tokens=rng.integers(10, 2000, 200),
        image_heights=[side[0].tolist() for side in sides],
        image_widths=[side[1].tolist() for side in sides],
    )


def _seconds(amounts: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    return {
        "vision": 2e-6 * amounts["patches"] + 1e-10 * amounts["patches_squared"] + 1e-3,
        "language": 1e-5 * amounts["tokens"] + 2e-9 * amounts["tokens_squared"] + 3e-3,
    }


def test_the_cost_model_prices_samples_so_that_a_microbatch_sums_to_its_time() -> None:
    table, rule = _table(), token_rule("qwen2.5-vl")
    groups = [np.arange(start, start + 4) for start in range(0, 200, 4)]
    amounts = microbatch_amounts(sample_amounts(table, rule), groups)
    seconds = _seconds(amounts)
    calibration = calibrate(Measurements.from_microbatches(table, rule, groups, seconds))
    model = calibration.cost_model(rule)
    costs = evaluate_costs(model, table)
    assert (costs.unit, costs.modules) == ("s", ("vision", "language"))
    assert calibration.calibrated
    assert model.calibrated
    assert model.constant_s == pytest.approx(4e-3)
    whole = costs.values.reshape(50, 4, 2).sum(axis=(1, 2)) + model.constant_s
    np.testing.assert_allclose(whole, seconds["vision"] + seconds["language"], rtol=1e-6)
    np.testing.assert_allclose(calibration.predict(amounts), whole, rtol=1e-9)


def test_tokens_and_patches_are_those_of_the_flops_cost_model() -> None:
    from balancer.flops.presets import preset

    table, model = _table(), preset("qwen2.5-vl-7b")
    amounts = sample_amounts(table, model.rule)
    costs = model(table)
    for name in ("tokens", "patches", "images"):
        np.testing.assert_array_equal(amounts[name], getattr(costs, name))


def test_another_token_rule_than_the_measured_is_refused() -> None:
    table, rule = _table(), token_rule("qwen2.5-vl")
    groups = [[i, i + 1] for i in range(0, 200, 2)]
    seconds = _seconds(microbatch_amounts(sample_amounts(table, rule), groups))
    calibration = calibrate(Measurements.from_microbatches(table, rule, groups, seconds))
    with pytest.raises(ArgumentError, match="counted with"):
        calibration.cost_model(token_rule("text-only"))


def test_media_of_a_module_that_was_not_measured_is_an_error_unless_meant() -> None:
    amounts = _language(40)
    seconds = 0.01 + 1e-5 * amounts["tokens"] + 1e-9 * amounts["tokens_squared"]
    calibration = calibrate(Measurements(amounts=amounts, seconds={"language": seconds}))
    rule = token_rule("qwen2.5-vl")
    with pytest.raises(SampleError, match="vision was not measured"):
        calibration.cost_model(rule)(_table())
    costs = calibration.cost_model(rule, unpriced=("vision",))(_table())
    assert costs.modules == ("language",)
    assert costs.patches.sum() > 0


def test_sizes_the_rule_refuses_are_listed_by_the_cost_model_and_refused_in_measurements() -> None:
    table = SampleTable.from_arrays(
        text_tokens=[5, 5], image_heights=[[56], [10]], image_widths=[[56], [9000]]
    )
    rule = token_rule("qwen2.5-vl")
    model = CalibratedCost(
        rule=rule,
        coefficients={"vision": {"patches": 1e-6}, "language": {"tokens": 1e-5}},
        constant_s=0.0,
    )
    assert model(table).illegal.tolist() == [1]
    with pytest.raises(SampleError, match="10 x 9000") as caught:
        Measurements.from_microbatches(table, rule, [[0, 1]], [0.1])
    assert caught.value.sample_ids == (1,)


def test_padded_microbatches_have_the_tokens_of_their_longest() -> None:
    amounts = {"tokens": np.array([3.0, 5.0, 2.0]), "tokens_squared": np.array([9.0, 25.0, 4.0])}
    padded = microbatch_amounts(amounts, [[0, 1], [2]], layout="padded")
    assert padded["tokens"].tolist() == [10, 2]
    assert padded["tokens_squared"].tolist() == [50, 4]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "records is empty"),
        ([{"tokens": 3}], "no amounts or no seconds"),
        ([{"seconds": 3}], "no amounts or no seconds"),
        ([{"tokens": -3, "seconds": 1}], "tokens of measurement 0 is -3"),
        ([{"tokens": float("nan"), "seconds": 1}], "tokens of measurement 0 is nan"),
        ([{"tokens": "many", "seconds": 1}], "tokens of measurement 0 is 'many'"),
        ([{"tokens": 3, "seconds": 1}, {"seconds": 1}], r"records\[1\] has no 'tokens'"),
    ],
)
def test_impossible_records_are_refused(records: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Measurements.from_records(records)


def test_amounts_that_were_not_measured_or_timed_are_refused() -> None:
    measured = _measured(num=40, noise=0.01)
    with pytest.raises(ArgumentError, match="amounts names 'language'"):
        calibrate(measured, amounts={"language": ["tokens"]})
    with pytest.raises(ArgumentError, match="has 'images'; measured were patches"):
        calibrate(measured, amounts={"vision": ["images"]})
    assert set(calibrate(measured, amounts={"vision": ["patches"]}).fits[0].coefficients) == {
        "patches",
        "constant",
    }


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(BalancerError, match=r"evenstep\[calibrate\]"):
        calibrate(_measured(num=40, noise=0.01))


@pytest.mark.parametrize("held_out", [0.001, 0.9])
def test_a_share_held_out_that_leaves_too_little_is_refused(held_out: float) -> None:
    with pytest.raises(ArgumentError, match=f"held_out is {held_out}, which holds out"):
        calibrate(_measured(num=40, noise=0.01), held_out=held_out)


@pytest.mark.parametrize("held_out", [0.0, 1.0, -1.0, float("nan")])
def test_a_share_held_out_is_above_zero_and_below_one(held_out: float) -> None:
    with pytest.raises(ArgumentError, match=r"held_out is .* shares above 0 and below 1"):
        calibrate(_measured(num=40, noise=0.01), held_out=held_out)
