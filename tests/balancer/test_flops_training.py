"""FLOPs of a training pass: what frozen, recomputed and attention parts add."""

import numpy as np
import pytest

from balancer.dimensions import LanguageDims
from balancer.errors import ArgumentError
from balancer.flops import language_forward
from balancer.training_flops import training_factor, training_flops

FORWARD = language_forward(
    LanguageDims(depth=2, width=8, num_heads=4, mlp_width=20, vocab_size=50), [10, 300]
)


def test_training_is_three_forwards() -> None:
    np.testing.assert_allclose(training_flops(FORWARD), 3 * FORWARD.total, rtol=1e-12)


def test_a_frozen_module_runs_forward_only_and_recomputes_nothing() -> None:
    frozen = training_flops(FORWARD, "frozen", recompute="layers")
    assert frozen.tolist() == FORWARD.total.tolist()


def test_a_frozen_module_that_passes_gradients_saves_one_product_a_weight() -> None:
    passing = training_flops(FORWARD, "frozen_with_grad")
    weights = FORWARD.layer + FORWARD.layer_end + FORWARD.head
    np.testing.assert_allclose(passing, 2 * weights + 3 * FORWARD.attention, rtol=1e-12)


def test_recomputing_the_layers_runs_them_once_more_but_not_the_head() -> None:
    again = training_flops(FORWARD, recompute="layers") - training_flops(FORWARD)
    np.testing.assert_allclose(again, FORWARD.total - FORWARD.head, rtol=1e-12)


def test_an_early_stop_saves_the_last_product_of_each_layer() -> None:
    saved = training_flops(FORWARD, recompute="layers") - training_flops(
        FORWARD, recompute="layers_early_stop"
    )
    np.testing.assert_allclose(saved, FORWARD.layer_end, rtol=1e-12)


def test_flash_attention_adds_half_a_forward_of_attention() -> None:
    added = training_flops(FORWARD, attention_backward=2.5) - training_flops(FORWARD)
    np.testing.assert_allclose(added, 0.5 * FORWARD.attention, rtol=1e-9)


def test_the_factor_is_that_of_a_layer_of_weights() -> None:
    assert training_factor("trained") == 3
    assert training_factor("frozen", recompute="layers") == 1
    assert training_factor("frozen_with_grad") == 2
    assert training_factor("frozen_with_grad", recompute="layers") == 3


def test_unknown_choices_are_refused_with_those_allowed() -> None:
    with pytest.raises(ArgumentError, match=r"^training is 'lora'; allowed: 'trained', 'frozen'"):
        training_flops(FORWARD, "lora")
    with pytest.raises(ArgumentError, match=r"^recompute is True; allowed: 'none', 'layers'"):
        training_flops(FORWARD, recompute=True)
