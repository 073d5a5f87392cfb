"""FLOPs of a training pass: what frozen, recomputed and attention parts add."""

from dataclasses import replace

import numpy as np
import pytest

from balancer.errors import ArgumentError
from balancer.flops.cost import FlopsCost
from balancer.flops.dimensions import LanguageDims
from balancer.flops.forward import language_forward
from balancer.flops.lora import Lora, adapter_forward, lora_training_flops
from balancer.flops.training import training_factor, training_flops
from balancer.samples import SampleTable
from balancer.tokens import FamilyRule

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


DENSE = LanguageDims(depth=2, width=8, num_heads=4, num_kv_heads=2, mlp_width=20, vocab_size=50)


def test_an_adapter_is_two_thin_products_in_every_layer() -> None:
    lora = Lora(rank=3, targets=("q", "k", "down"))
    forward = adapter_forward(DENSE, lora, np.array([10]))
    assert forward.total[0] == 2 * 2 * 3 * 10 * ((8 + 8) + (8 + 4) + (20 + 8))
    assert forward.layer_end[0] == 2 * 2 * 3 * 10 * 8


def test_adapters_cost_more_with_their_rank_and_less_than_training_everything() -> None:
    tokens = np.array([10, 300])
    forward = language_forward(DENSE, tokens)
    low = lora_training_flops(DENSE, Lora(rank=1), tokens, forward)
    high = lora_training_flops(DENSE, Lora(rank=2), tokens, forward)
    assert (low < high).all()
    assert (training_flops(forward, "frozen_with_grad") < low).all()
    assert (lora_training_flops(DENSE, Lora(rank=1, targets=("q",)), tokens, forward) < low).all()


def test_impossible_adapters_are_refused_by_name() -> None:
    with pytest.raises(ArgumentError, match=r"^rank is 0; allowed: whole numbers >= 1"):
        Lora(rank=0)
    with pytest.raises(
        ArgumentError, match=r"^targets is \('q_proj',\); allowed: one or more of q"
    ):
        Lora(rank=1, targets=("q_proj",))
    with pytest.raises(ArgumentError, match=r"^targets is \('q', 'q'\)"):
        Lora(rank=1, targets=("q", "q"))
    moe = replace(DENSE, num_experts=4, experts_per_token=2, expert_width=8)
    with pytest.raises(ArgumentError, match=r"^targets has gate, up, down; allowed for a mixture"):
        adapter_forward(moe, Lora(rank=1), np.array([1]))


def test_a_cost_model_with_adapters_needs_a_frozen_language_model() -> None:
    with pytest.raises(ArgumentError, match=r"^language_training is 'trained'; .* language_lora"):
        FlopsCost(language=DENSE, rule=FamilyRule(), language_lora=Lora(rank=4))
    cost = FlopsCost(
        language=DENSE,
        rule=FamilyRule(),
        language_training="frozen_with_grad",
        language_lora=Lora(rank=4),
    )
    tokens = np.array([10, 300])
    expected = lora_training_flops(DENSE, Lora(rank=4), tokens, language_forward(DENSE, tokens))
    assert cost(SampleTable.from_lengths(tokens)).values[:, 0].tolist() == expected.tolist()
