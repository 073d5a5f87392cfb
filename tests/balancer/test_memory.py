"""Memory models, limits made from them, and the heaviest microbatches of a plan."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel,
)

from balancer.activations import memory_model_from_cost, memory_model_from_dims
from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.flops.dimensions import AudioDims, LanguageDims, VisionDims
from balancer.flops.presets import preset
from balancer.flops.training import Recompute, Training
from balancer.heaviest import (
    PackedLayout,
    heaviest_first,
    heaviest_microbatches,
    microbatch_bytes,
    packed_bytes,
)
from balancer.memory import MemoryModel, limits_for
from balancer.pipeline import step_times
from balancer.plan import Plan
from balancer.planner import EpochPlanner
from balancer.topology import Topology
from loaders.collate import PackedCollator

_MODEL = MemoryModel(
    bytes_per_token=700.0, bytes_per_patch=90.0, bytes_per_image=50.0, fixed_bytes=20_000.0
)


def _costs(rng: np.random.Generator, num: int) -> Costs:
    images = rng.poisson(0.7, num)
    patches = images * rng.integers(50, 900, num)
    tokens = rng.integers(10, 800, num) + patches // 4
    values = np.stack([patches**1.2, tokens + 1e-3 * tokens**2.0], axis=1)
    return Costs.from_values(
        values, modules=("vision", "language"), tokens=tokens, patches=patches, images=images
    )


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("seed", range(10))
def test_no_plan_under_the_limits_takes_more_than_the_memory(seed: int, layout: str) -> None:
    rng = np.random.default_rng(seed)
    costs = _costs(rng, 600)
    memory = float(rng.uniform(2.0, 6.0)) * float(
        _MODEL.bytes(tokens=costs.tokens, patches=costs.patches, images=costs.images).max()
    )
    limits = limits_for(memory, _MODEL, costs=costs, layout=layout)  # type: ignore[arg-type]
    topology = Topology(dp_size=4, num_microbatches=2, limits=limits)
    planner = EpochPlanner(costs, topology, global_batch_size=60, seed=seed)
    plan = planner.plan_epoch(0)
    sizes = microbatch_bytes(plan, costs, _MODEL)
    assert sizes.max() <= 0.9 * memory
    assert len(plan.sample_ids) == 600


def test_a_microbatch_at_all_limits_at_once_fits_and_hardly_more_would() -> None:
    costs = _costs(np.random.default_rng(0), 500)
    limits = limits_for(1e7, _MODEL, costs=costs, margin=0.2)
    full = _MODEL.bytes(
        tokens=limits.max_tokens or 0, patches=limits.max_patches or 0, images=limits.max_images
    )
    assert 0.999 * 0.8e7 < full <= 0.8e7


def test_memory_is_shared_in_the_proportion_of_the_samples_needs() -> None:
    costs = _costs(np.random.default_rng(1), 500)
    limits = limits_for(1e9, _MODEL, costs=costs)
    ratio = costs.patches.mean() / costs.tokens.mean()
    assert (limits.max_patches or 0) / (limits.max_tokens or 1) == pytest.approx(ratio, rel=1e-3)


def test_limits_let_the_largest_sample_in_where_all_fit() -> None:
    costs = Costs.from_values(
        np.ones(100), tokens=[100] * 100, patches=[0] * 99 + [10_000], images=[0] * 99 + [1]
    )
    need = 700 * 100 + 90 * 10_000 + 50 + 20_000
    limits = limits_for(1.02 * need, _MODEL, costs=costs, margin=0.0)
    assert limits.max_patches is not None
    assert limits.max_patches >= 10_000
    assert limits.max_images == 1


def test_costs_play_no_part_in_the_limits() -> None:
    costs = _costs(np.random.default_rng(2), 100)
    quadratic = replace(costs, values=costs.values**2)
    assert limits_for(1e7, _MODEL, costs=costs) == limits_for(1e7, _MODEL, costs=quadratic)


def test_one_amount_needs_no_samples_and_several_do() -> None:
    model = MemoryModel(bytes_per_token=1000.0)
    assert limits_for(1e6, model, margin=0.0).max_tokens == 1000
    with pytest.raises(ArgumentError, match="give costs"):
        limits_for(1e6, _MODEL)


@pytest.mark.parametrize("memory", [0.0, -1.0, float("nan"), 20_000.0])
def test_memory_that_holds_nothing_is_refused(memory: float) -> None:
    with pytest.raises(ArgumentError, match="does not hold one of tokens, patches, images"):
        limits_for(memory, _MODEL, costs=_costs(np.random.default_rng(0), 10))


def test_impossible_numbers_of_a_memory_model_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"bytes_per_patch is -1\.0"):
        MemoryModel(bytes_per_token=1.0, bytes_per_patch=-1.0)
    with pytest.raises(ArgumentError, match="all 0"):
        MemoryModel(fixed_bytes=5.0)
    with pytest.raises(ArgumentError, match=r"margin is 1\.0"):
        limits_for(1e9, MemoryModel(bytes_per_token=1.0), margin=1.0)


def _plan() -> tuple[Plan, Costs]:
    costs = _costs(np.random.default_rng(3), 240)
    planner = EpochPlanner(costs, Topology(dp_size=4, num_microbatches=3), global_batch_size=48)
    return planner.plan_epoch(0), costs


def test_the_heaviest_microbatches_come_first_and_hold_what_they_say() -> None:
    plan, costs = _plan()
    heavy = heaviest_microbatches(plan, costs, _MODEL, 5)
    assert [entry.bytes for entry in heavy] == sorted(
        microbatch_bytes(plan, costs, _MODEL).tolist(), reverse=True
    )[:5]
    for entry in heavy:
        ids = plan.microbatch(step=entry.step, index=entry.index, dp_rank=entry.dp_rank)
        assert entry.sample_ids == tuple(ids.tolist())
        assert entry.tokens == costs.tokens[ids].sum()
    with pytest.raises(ArgumentError, match="count is 0"):
        heaviest_microbatches(plan, costs, _MODEL, 0)


def test_heaviest_first_moves_whole_slots_and_nothing_else() -> None:
    plan, costs = _plan()
    ordered = heaviest_first(plan, costs, _MODEL)
    ordered.check(costs, expected_ids=np.arange(240))
    np.testing.assert_allclose(step_times(ordered, costs), step_times(plan, costs), rtol=1e-12)
    assert ordered.certificates == plan.certificates
    heaviest = microbatch_bytes(ordered, costs, _MODEL).reshape(-1, 4).max(axis=1)
    for step in range(plan.num_steps):
        slots = slice(plan.step_slots[step], plan.step_slots[step + 1])
        assert (np.diff(heaviest[slots]) <= 0).all()
        before, after = (_slots_of(p, step) for p in (plan, ordered))
        assert sorted(before) == sorted(after)


def _slots_of(plan: Plan, step: int) -> list[tuple[tuple[int, ...], ...]]:
    return [
        tuple(
            tuple(plan.microbatch(step=step, index=index, dp_rank=rank).tolist())
            for rank in range(plan.topology.dp_size)
        )
        for index in range(plan.num_microbatches(step))
    ]


def test_flags_move_with_their_samples() -> None:
    plan = Plan.from_cells([[[[0, 1], [2]], [[3], [4, 5]]]])
    plan = replace(plan, flags=np.array([0, 1, 2, 1, 0, 2], np.int8))
    costs = Costs.from_values(np.ones(6), tokens=[1, 1, 1, 1, 9, 9])
    ordered = heaviest_first(plan, costs, MemoryModel(bytes_per_token=1.0))
    assert ordered.sample_ids.tolist() == [3, 4, 5, 0, 1, 2]
    assert ordered.flags.tolist() == [1, 0, 2, 0, 1, 2]


def test_packed_bytes_are_those_of_the_collated_tensors() -> None:
    samples = [
        {
            "input_ids": torch.arange(length),
            "pixel_values": torch.zeros(patches, 12),
            "image_grid_thw": torch.ones(images, 3, dtype=torch.int64),
        }
        for length, patches, images in ((7, 16, 1), (5, 36, 2), (9, 4, 1))
    ]
    costs = Costs.from_values(np.ones(3), tokens=[7, 5, 9], patches=[16, 36, 4], images=[1, 2, 1])
    batch = PackedCollator()(samples)
    size = sum(value.nbytes for value in batch.values() if isinstance(value, Tensor))
    layout = PackedLayout(bytes_per_patch=12 * 4, bytes_per_sample=4)  # no ids: no sampler here
    assert packed_bytes(Plan.from_cells([[[[0, 1, 2]]]]), costs, layout).tolist() == [size]


def _kept(model: nn.Module, forward: object) -> int:
    """Bytes that autograd keeps of a forward pass, beside parameters and buffers."""
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    storages, alive = {}, []

    def pack(tensor: Tensor) -> Tensor:
        alive.append(tensor)
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()  # type: ignore[operator]
    assert result is not None
    return sum(storages.values())


_LLAMA = LanguageDims(
    depth=3, width=64, num_heads=4, num_kv_heads=2, mlp_width=160, vocab_size=1000
)


def _llama(training: Training, recompute: Recompute) -> nn.Module:
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=1000, attn_implementation="sdpa",
    )  # fmt: skip
    model = transformers.LlamaModel(config).to(torch.bfloat16)
    model.requires_grad_(training == "trained")
    if recompute == "layers":
        model.activation_checkpointing_enable({"use_reentrant": False})
    return model.train()


@pytest.mark.parametrize("training", ["trained", "frozen_with_grad"])
@pytest.mark.parametrize("recompute", ["none", "layers"])
def test_bytes_a_token_are_what_autograd_keeps(training: Training, recompute: Recompute) -> None:
    model = _llama(training, recompute)
    hidden = torch.randn(1, 512, 64, dtype=torch.bfloat16, requires_grad=True)

    def kept(tokens: int) -> int:
        inputs = hidden[:, :tokens].clone()
        return _kept(model, lambda: model(inputs_embeds=inputs, use_cache=False).last_hidden_state)

    measured = (kept(384) - kept(128)) / 256
    options = {"logits": "fused", "language_training": training}
    predicted = memory_model_from_dims(_LLAMA, recompute=recompute, **options)  # type: ignore[arg-type]
    # The last norm's result is kept by the head, which is not here.
    unseen = 2 * 64 if training == "trained" else 0
    if recompute == "layers":
        # The layer that is recomputed and the rotary tables it is called with come with backward.
        deep = memory_model_from_dims(replace(_LLAMA, depth=4), **options)  # type: ignore[arg-type]
        flat = memory_model_from_dims(_LLAMA, **options)  # type: ignore[arg-type]
        unseen += deep.bytes_per_token - flat.bytes_per_token + 2 * 2 * 16
    assert predicted.bytes_per_token - unseen == pytest.approx(measured, rel=0.01)


def test_bytes_a_patch_cover_what_autograd_keeps_of_a_windowed_encoder() -> None:
    config = Qwen2_5_VLVisionConfig(
        depth=3, hidden_size=48, intermediate_size=96, num_heads=4, out_hidden_size=64,
        fullatt_block_indexes=[1], attn_implementation="sdpa",
    )  # fmt: skip
    dims = VisionDims(
        depth=3, width=48, num_heads=4, mlp_width=96, gated_mlp=True, patch_values=1176, merge=4,
        projector_widths=(192, 64), projector_norm=True, window=8, full_attention_layers=1,
    )  # fmt: skip
    model = Qwen2_5_VisionTransformerPretrainedModel(config).to(torch.bfloat16)

    def kept(side: int) -> int:
        pixels, grid = torch.randn(side * side, 1176), torch.tensor([[1, side, side]])
        return pixels.nbytes + _kept(model, lambda: model(pixels, grid).pooler_output)

    measured = (kept(32) - kept(16)) / (32 * 32 - 16 * 16)
    predicted = memory_model_from_dims(_LLAMA, dims).bytes_per_patch
    assert predicted == pytest.approx(measured, rel=0.01)


def test_bytes_a_patch_are_not_less_than_autograd_keeps_of_a_plain_encoder() -> None:
    config = transformers.SiglipVisionConfig(
        hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        image_size=64, patch_size=8, vision_use_head=False, attn_implementation="sdpa",
    )  # fmt: skip
    dims = VisionDims(depth=3, width=48, num_heads=4, mlp_width=96, patch_values=192)
    model = transformers.SiglipVisionModel(config).to(torch.bfloat16)
    pixels = torch.randn(2, 3, 64, 64)

    def kept(num: int) -> int:
        return pixels[:num].nbytes + _kept(
            model, lambda: model(pixel_values=pixels[:num].to(torch.bfloat16)).last_hidden_state
        )

    measured = (kept(2) - kept(1)) / 64
    predicted = memory_model_from_dims(_LLAMA, dims).bytes_per_patch
    assert measured <= predicted <= 1.4 * measured


def test_logits_recomputation_and_frozen_towers_change_the_bytes_as_they_should() -> None:
    cost = preset("qwen2.5-vl-7b")
    whole = memory_model_from_cost(cost)
    fused = memory_model_from_cost(cost, logits="fused")
    assert whole.bytes_per_token - fused.bytes_per_token == 152064 * (2 + 8)
    again = memory_model_from_cost(replace(cost, recompute="layers"), logits="fused")
    assert again.bytes_per_token < 0.15 * fused.bytes_per_token
    frozen = memory_model_from_cost(replace(cost, vision_training="frozen"))
    assert frozen.bytes_per_patch < 0.1 * whole.bytes_per_patch
    assert frozen.bytes_per_token == whole.bytes_per_token


def test_an_audio_encoder_is_refused_with_what_to_do() -> None:
    audio = AudioDims(depth=2, width=64, num_heads=4, mlp_width=128)
    with pytest.raises(ArgumentError, match="put its peak in fixed_bytes"):
        memory_model_from_cost(replace(preset("text-7b"), audio=audio))
