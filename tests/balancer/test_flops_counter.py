"""The formulas against `FlopCounterMode` on the models of transformers: not one FLOP apart."""

from typing import get_args

import numpy as np
import pytest
import torch
import transformers
from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

from balancer.flops.cost import FlopsCost
from balancer.flops.lora import Adapted
from balancer.flops.training import Recompute, Training
from balancer.samples import SampleTable
from tests.flop_cases import CASES, LORA_TARGETS, llama_lora_row, projector_rows
from tests.flop_oracles import DIRECTIONS, counted, flop_row


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", CASES)
def test_every_product_of_the_model_is_counted(name: str, direction: str) -> None:
    row = flop_row(CASES[name](), direction)
    assert row.ours == row.counter


@pytest.mark.parametrize("recompute", get_args(Recompute))
@pytest.mark.parametrize("targets", LORA_TARGETS)
def test_adapters_cost_their_own_products_and_the_gradients_through_the_model(
    targets: tuple[Adapted, ...], recompute: Recompute
) -> None:
    row = llama_lora_row(targets, recompute)
    assert row.ours == row.counter


def test_a_projector_behind_a_frozen_tower_counts_as_its_norm_demands() -> None:
    for row in projector_rows():
        assert row.ours == row.counter


def test_flash_attention_computes_five_products_backward_for_two_forward() -> None:
    shape = (1, 4, 128, 64)
    forward = sdpa_flop_count(shape, shape, shape)
    assert sdpa_backward_flop_count(shape, shape, shape, shape) == 2.5 * forward


def tiny_qwen() -> transformers.Qwen2_5_VLConfig:
    return transformers.Qwen2_5_VLConfig(
        text_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 101,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]},
        },
        vision_config={
            "depth": 3,
            "num_heads": 3,
            "hidden_size": 24,
            "intermediate_size": 40,
            "out_hidden_size": 32,
            "fullatt_block_indexes": [1],
        },
        image_token_id=99,
        video_token_id=98,
        vision_start_token_id=97,
    )


STAGES: dict[str, dict[str, Training]] = {
    "all trained": {},
    "frozen tower": {"vision_training": "frozen"},
    "projector only": {"vision_training": "frozen", "language_training": "frozen_with_grad"},
    "language only": {"vision_training": "frozen", "projector_training": "frozen"},
}


@pytest.mark.parametrize("stage", STAGES)
def test_the_price_of_a_sample_is_what_a_training_step_on_it_computes(stage: str) -> None:
    """A photo and some text through the whole of a small Qwen2.5-VL, forward and backward."""
    config = tiny_qwen()
    cost = FlopsCost.from_config(config.to_dict(), causal="full", **STAGES[stage])
    table = SampleTable.from_arrays(text_tokens=[20], image_heights=[[260]], image_widths=[[150]])
    image = cost.rule.images(np.array([260]), np.array([150]))
    grid = [int(image.segments[0]), int(image.grid_heights[0]), int(image.grid_widths[0])]
    ids = torch.ones(1, 20 + int(image.tokens[0]), dtype=torch.long)
    ids[0, 7 : 7 + int(image.tokens[0])] = 99
    config._attn_implementation = "eager"
    model = transformers.Qwen2_5_VLForConditionalGeneration(config)
    for parameter in model.model.visual.parameters():
        parameter.requires_grad_(cost.vision_training == "trained")
    for parameter in model.model.visual.merger.parameters():
        parameter.requires_grad_(cost.projector_training == "trained")
    for part in (model.model.language_model, model.lm_head):
        for parameter in part.parameters():
            parameter.requires_grad_(cost.language_training == "trained")

    def run() -> torch.Tensor:
        return model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            mm_token_type_ids=(ids == 99).int(),
            pixel_values=torch.ones(grid[0] * grid[1] * grid[2], 1176),
            image_grid_thw=torch.tensor([grid]),
            use_cache=False,
        ).logits

    costs = cost(table)
    assert costs.tokens.tolist() == [ids.shape[1]]
    assert costs.total[0] == counted(run, backward=True)
