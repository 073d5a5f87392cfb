"""The measurement of real times runs end to end and counts what it times."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks import pricing_times
from benchmarks.pricing_records import heldout_records
from benchmarks.pricing_times import (
    DECODER,
    VIT,
    time_decoder,
    time_predictions,
    time_vit,
)
from benchmarks.tiny_models import Decoder, VisionTransformer


def test_samples_packed_together_do_not_see_each_other() -> None:
    torch.manual_seed(0)
    encoder, decoder = VisionTransformer(VIT), Decoder(DECODER)
    patches = torch.randn(30, VIT.patch_values)
    whole = 30 * encoder(patches, [10, 20])
    apart = 10 * encoder(patches[:10], [10]) + 20 * encoder(patches[10:], [20])
    torch.testing.assert_close(whole, apart)
    ids = torch.randint(DECODER.vocab_size, (30,))
    whole = 30 * decoder(ids, [10, 20])
    torch.testing.assert_close(whole, 10 * decoder(ids[:10], [10]) + 20 * decoder(ids[10:], [20]))


def test_every_predictor_is_judged_on_the_same_held_out_shapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With times that follow from the shapes, so that the result does not hang on the machine."""

    def seconds_of(calls: Sequence[partial[None]], rounds: int) -> NDArray[np.float64]:
        lengths = [np.array(call.args[2], float) for call in calls]
        return np.array([0.01 + sum(1e-3 + 1e-5 * n + 2e-8 * n**2 for n in one) for one in lengths])

    monkeypatch.setattr(pricing_times, "_median_rounds", seconds_of)
    panels = time_predictions(quick=True)
    assert [panel.data for panel in panels] == ["vit", "decoder"]
    for panel in panels:
        assert {len(seconds) for seconds in panel.predicted.values()} == {len(panel.seconds)}
    records = [record for panel in panels for record in heldout_records("e", [panel])]
    values = {(r.data, r.planner, r.metric): r.value for r in records}
    assert set(values) == {
        (data, predictor, metric)
        for data in ("vit", "decoder")
        for predictor in ("calibrated", "flops_only", "tokens_only")
        for metric in ("mape_heldout", "spearman_heldout")
    }
    assert {r.n for r in records} == {30}
    assert values["vit", "calibrated", "mape_heldout"] < 1e-6
    assert values["vit", "calibrated", "spearman_heldout"] == 1.0
    assert values["decoder", "tokens_only", "mape_heldout"] > 0.1


def test_real_calls_are_timed_and_their_amounts_counted() -> None:
    threads = torch.get_num_threads()
    vit = time_vit(3, 1, largest=144, seed=1).measurements
    decoder = time_decoder(3, 1, largest=64, seed=1).measurements
    assert (vit.seconds["vision"] > 0).all()
    assert (decoder.seconds["language"] > 0).all()
    assert (vit.amounts["images"] >= 1).all()
    assert (vit.amounts["patches"] >= 64 * vit.amounts["images"]).all()
    assert (decoder.amounts["tokens_squared"] <= decoder.amounts["tokens"] ** 2).all()
    assert torch.get_num_threads() == threads
