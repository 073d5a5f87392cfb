"""CPU time of samples from facts known before decoding."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from balancer.errors import ArgumentError, SampleError
from balancer.prep import PrepFeatures, PrepModel, fit_prep, resize_work, resized_sizes
from balancer.probing import MediaFiles, probe
from balancer.samples import SampleTable
from balancer.tokens import token_rule

pytest.importorskip("scipy")

_TRUE = {"image/JPEG:pixels": 1e-8, "image/PNG:pixels": 3e-8, "image:resize_pixels": 5e-9}


def _features(num: int, seed: int = 0) -> PrepFeatures:
    """Images of two formats, resized to other sizes."""
    rng = np.random.default_rng(seed)
    jpeg, pixels = rng.random(num) < 0.5, rng.lognormal(13, 1, num)
    values = [pixels * jpeg, pixels * ~jpeg, rng.lognormal(13, 1, num), np.ones(num)]
    return PrepFeatures(names=(*_TRUE, "sample:items"), values=np.stack(values, axis=1))


def _seconds(features: PrepFeatures, noise: float = 0.0, seed: int = 1) -> np.ndarray:
    exact = features.values @ np.array([*_TRUE.values(), 2e-4])
    return exact * (1 + noise * np.random.default_rng(seed).standard_normal(len(features)))


def _coefficient(model: PrepModel, name: str) -> float:
    return model.coefficients[name]


def test_coefficients_of_each_format_are_found_in_noise() -> None:
    features = _features(400)
    model = fit_prep(features, _seconds(features, noise=0.05))
    for name, value in _TRUE.items():
        assert _coefficient(model, name) == pytest.approx(value, rel=0.05)
    assert model.held_out.mape < 0.06
    assert model.held_out.spearman > 0.98


def test_tenfold_outliers_do_not_move_the_coefficients() -> None:
    features = _features(400)
    seconds = _seconds(features, noise=0.05)
    seconds[::33] *= 10
    model = fit_prep(features, seconds)
    for name, value in _TRUE.items():
        assert _coefficient(model, name) == pytest.approx(value, rel=0.05)
    assert model.num_outliers >= 13


@given(seed=st.integers(0, 2**32 - 1))
def test_no_time_is_negative(seed: int) -> None:
    """Coefficients, and so predictions, are never negative, whatever was measured."""
    rng = np.random.default_rng(seed)
    model = fit_prep(_features(60, seed), rng.lognormal(-5, 2, 60))
    assert min(model.coefficients.values()) >= 0
    assert (model.predict(_features(20, seed + 1)) >= 0).all()


def test_a_rare_format_is_priced_as_the_one_above_it() -> None:
    features = _features(100)
    rare = features.values[:, 0].copy()
    rare[5:] = 0
    values = np.column_stack([features.values, rare])
    values[:5, 0] = 0
    renamed = PrepFeatures(names=(*features.names, "image/JPEG/CMYK:pixels"), values=values)
    model = fit_prep(renamed, _seconds(features))
    assert "image/JPEG/CMYK:pixels" not in model.coefficients
    np.testing.assert_allclose(model.predict(renamed), _seconds(features), rtol=1e-6)


def test_an_amount_that_was_never_measured_is_refused() -> None:
    model = fit_prep(_features(60), _seconds(_features(60)))
    unknown = PrepFeatures(names=("audio/ogg/vorbis:seconds",), values=np.ones((1, 1)))
    with pytest.raises(ArgumentError, match=r"audio/ogg/vorbis:seconds.*measure samples"):
        model.predict(unknown)


def test_a_model_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    features = _features(60)
    model = fit_prep(features, _seconds(features), hardware="one core", versions={"pillow": "1"})
    path = tmp_path / "prep.json"
    model.save(path)
    assert PrepModel.load(path) == model
    assert json.loads(path.read_text())["coefficients"]["image/PNG:pixels"]["unit"] == "s/pixel"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 9}'])
def test_a_file_that_is_no_model_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "prep.json").write_text(content)
    with pytest.raises(ArgumentError, match="path"):
        PrepModel.load(tmp_path / "prep.json")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: fit_prep(f, np.ones(3)), ArgumentError, "seconds has shape"),
        (lambda f: fit_prep(f, np.zeros(len(f))), SampleError, "seconds of sample 0 is 0"),
        (lambda f: fit_prep(f, np.full(len(f), np.nan)), SampleError, "is nan"),
        (lambda f: fit_prep(f, np.ones(len(f)), held_out=1), ArgumentError, "held_out is 1"),
        (lambda f: fit_prep(f.select([0, 1]), np.ones(2)), ArgumentError, "measure more"),
        (lambda f: PrepFeatures(names=("a:b",), values=f.values), ArgumentError, "values has"),
        (
            lambda f: PrepFeatures(names=f.names, values=-f.values),
            ArgumentError,
            "image/.*:pixels of sample 0",
        ),
    ],
)
def test_bad_measurements_are_told(
    call: Callable[[PrepFeatures], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(_features(60))


def test_resizing_costs_only_the_passes_that_are_made() -> None:
    heights, widths = np.array([100, 100, 100]), np.array([200, 200, 200])
    work = resize_work(heights, widths, np.array([100, 50, 400]), np.array([200, 200, 100]))
    assert work.tolist() == [0.0, 200 * 100, 100 * 200 + 100 * 400]


@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl", "pixtral"])
def test_resized_sizes_have_the_patches_of_the_rule(family: str) -> None:
    rule = token_rule(family)
    heights, widths = np.array([480, 2000, 57]), np.array([640, 3000, 900])
    side = 16 if family != "qwen2.5-vl" else 14
    tall, wide = resized_sizes(rule, heights, widths, patch_size=side)
    assert (tall * wide // side**2).tolist() == rule.images(heights, widths).patches.tolist()


def _files(folder: Path) -> MediaFiles:
    Image.new("RGB", (40, 30)).save(folder / "a.jpg")
    Image.new("CMYK", (80, 30)).save(folder / "b.jpg")
    Image.new("RGBA", (50, 20)).save(folder / "c.png")
    return probe(folder, progress=False)


def test_files_give_their_format_their_own_columns(tmp_path: Path) -> None:
    files = _files(tmp_path)
    features = PrepFeatures.from_files(files, samples=[1, 0, 1], characters=[10, 20])
    amounts = dict(zip(features.names, features.values.T.tolist(), strict=True))
    assert amounts["image/JPEG/RGB:pixels"] == [0, 1200]
    assert amounts["image/JPEG/CMYK:pixels"] == [2400, 0]
    assert amounts["image/PNG/RGBA:bytes"] == [0, files.encoded_bytes[2]]
    assert amounts["image:items"] == [1, 2]
    assert amounts["image:resize_pixels"] == [0, 0]
    assert amounts["text:characters"] == [10, 20]


def test_a_table_gives_the_features_of_its_files(tmp_path: Path) -> None:
    files = _files(tmp_path)
    table = files.to_table()
    of_table = PrepFeatures.from_table(table)
    of_files = PrepFeatures.from_files(files)
    total = {
        amount: of_files.only(amount).values.sum(axis=1).tolist()
        for amount in ("bytes", "pixels", "items")
    }
    for amount, values in total.items():
        assert of_table.only(amount).values.sum(axis=1).tolist() == values


def test_a_table_shares_bytes_out_and_knows_videos_and_clips() -> None:
    table = SampleTable.from_arrays(
        text_tokens=[3, 4],
        image_heights=[[10, 10], []],
        image_widths=[[10, 30], []],
        video_frames=[[], [6]],
        video_heights=[[], [10]],
        video_widths=[[], [10]],
        audio_seconds=[[], [2.0]],
        encoded_bytes=[400, 0],
    )
    features = PrepFeatures.from_table(table, rule=token_rule("qwen2.5-vl"))
    amounts = dict(zip(features.names, features.values.T.tolist(), strict=True))
    assert amounts["image:bytes"] == [400, 0]
    assert amounts["video:pixels"] == [0, 600]
    assert amounts["audio:seconds"] == [0, 2.0]
    assert amounts["image:output_pixels"][0] > 400
