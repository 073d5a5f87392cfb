"""Dimensions read from a configuration give the FLOPs of the model built from it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from balancer.errors import ArgumentError
from balancer.flops.config import audio_dims, family_rule, language_dims, vision_dims
from balancer.flops.cost import FlopsCost
from balancer.flops.forward import language_flops, vision_flops
from balancer.samples import SampleTable
from tests.flop_oracles import counted

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 101,
}
MROPE = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}}
TOWER = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": 56,
    "patch_size": 14,
}
QWEN = {"depth": 4, "num_heads": 3, "patch_size": 14, "spatial_merge_size": 2}
SQUARE = {"pixel_values": (2, 3, 56, 56)}
PACKED = {"pixel_values": (96, 1176), "image_grid_thw": torch.tensor([[1, 8, 12]])}


def tiles(config_class: Any, text: str, **settings: Any) -> Any:
    """A configuration whose encoder takes tiles of 56 pixels."""
    return config_class(text_config={"model_type": text, **TEXT}, **settings)


VISION_MODELS: dict[str, tuple[Callable[[], Any], dict[str, Any], tuple[int, int, int]]] = {
    "llava-clip": (
        lambda: tiles(
            transformers.LlavaConfig,
            "llama",
            vision_config={"model_type": "clip_vision_model", **TOWER},
        ),
        SQUARE,
        (2, 4, 4),
    ),
    "llava-siglip": (
        lambda: tiles(
            transformers.LlavaConfig,
            "llama",
            vision_config={"model_type": "siglip_vision_model", "vision_use_head": False, **TOWER},
            vision_feature_layer=-1,
            vision_feature_select_strategy="full",
        ),
        SQUARE,
        (2, 4, 4),
    ),
    "llava-pixtral": (
        lambda: tiles(
            transformers.LlavaConfig,
            "mistral",
            vision_config={"model_type": "pixtral", **TOWER},
            vision_feature_layer=-1,
            vision_feature_select_strategy="full",
        ),
        {"pixel_values": (1, 3, 28, 56), "image_sizes": torch.tensor([[28, 56]])},
        (1, 2, 4),
    ),
    "llava-next": (
        lambda: tiles(
            transformers.LlavaNextConfig,
            "mistral",
            vision_config={"model_type": "clip_vision_model", **TOWER},
            image_grid_pinpoints=[[56, 112]],
        ),
        {"pixel_values": (1, 3, 3, 56, 56), "image_sizes": torch.tensor([[56, 112]])},
        (3, 4, 4),
    ),
    "llava-onevision": (
        lambda: tiles(
            transformers.LlavaOnevisionConfig,
            "qwen2",
            vision_config={"model_type": "siglip_vision_model", "vision_use_head": False, **TOWER},
            image_grid_pinpoints=[[56, 112]],
        ),
        {"pixel_values": (1, 3, 3, 56, 56), "image_sizes": torch.tensor([[56, 112]])},
        (3, 4, 4),
    ),
    "idefics3": (
        lambda: tiles(transformers.Idefics3Config, "llama", vision_config=TOWER),
        {"pixel_values": (1, 2, 3, 56, 56)},
        (2, 4, 4),
    ),
    "smolvlm": (
        lambda: tiles(transformers.SmolVLMConfig, "llama", vision_config=TOWER, scale_factor=4),
        {"pixel_values": (1, 2, 3, 56, 56)},
        (2, 4, 4),
    ),
    "internvl": (
        lambda: tiles(
            transformers.InternVLConfig,
            "qwen2",
            vision_config={**TOWER, "image_size": [56, 56], "patch_size": [14, 14]},
        ),
        SQUARE,
        (2, 4, 4),
    ),
    "mistral3": (
        lambda: tiles(
            transformers.Mistral3Config, "mistral", vision_config={"model_type": "pixtral", **TOWER}
        ),
        {"pixel_values": (1, 3, 28, 56), "image_sizes": torch.tensor([[28, 56]])},
        (1, 2, 4),
    ),
    "qwen2-vl": (
        lambda: transformers.Qwen2VLConfig(
            text_config=MROPE, vision_config={**QWEN, "embed_dim": 24, "hidden_size": 32}
        ),
        PACKED,
        (1, 8, 12),
    ),
    "qwen2.5-vl": (
        lambda: transformers.Qwen2_5_VLConfig(
            text_config=MROPE,
            vision_config={
                **QWEN,
                "hidden_size": 24,
                "intermediate_size": 40,
                "out_hidden_size": 32,
                "fullatt_block_indexes": [1],
            },
        ),
        PACKED,
        (1, 8, 12),
    ),
    "qwen3-vl": (
        lambda: transformers.Qwen3VLConfig(
            text_config={**MROPE, "head_dim": 8},
            vision_config={
                **QWEN,
                "hidden_size": 24,
                "intermediate_size": 40,
                "out_hidden_size": 32,
                "deepstack_visual_indexes": [0, 2],
                "num_position_embeddings": 64,
            },
        ),
        PACKED,
        (1, 8, 12),
    ),
}

LANGUAGE_MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**TEXT),
    "mistral": lambda: transformers.MistralConfig(**TEXT, sliding_window=4, head_dim=16),
    "qwen2": lambda: transformers.Qwen2Config(**TEXT),
    "qwen3": lambda: transformers.Qwen3Config(**TEXT, head_dim=16),
    "mixtral": lambda: transformers.MixtralConfig(**TEXT, num_local_experts=4),
    "qwen2-moe": lambda: transformers.Qwen2MoeConfig(
        **TEXT,
        num_experts=4,
        moe_intermediate_size=12,
        shared_expert_intermediate_size=20,
        decoder_sparse_step=2,
    ),
    "qwen3-moe": lambda: transformers.Qwen3MoeConfig(
        **TEXT, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, head_dim=16
    ),
}


def inputs(shapes: dict[str, Any]) -> dict[str, torch.Tensor]:
    ones = {name: torch.ones(value) for name, value in shapes.items() if isinstance(value, tuple)}
    return {**shapes, **ones}


@pytest.mark.parametrize("name", VISION_MODELS)
def test_vision_dimensions_give_the_flops_of_tower_and_projector(name: str) -> None:
    make, shapes, grid = VISION_MODELS[name]
    config = make()
    dims = vision_dims(config.to_dict())
    assert dims is not None
    config._attn_implementation = "eager"
    model = transformers.AutoModelForImageTextToText.from_config(config).eval()
    counter = counted(lambda: model.model.get_image_features(**inputs(shapes)), backward=False)
    assert vision_flops(dims, *([size] for size in grid))[0] == counter


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_language_dimensions_give_the_flops_of_the_model(name: str) -> None:
    config = LANGUAGE_MODELS[name]()
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"  # the counter has no formula for grouped products
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.zeros(1, 11, dtype=torch.long)
    counter = counted(lambda: model(input_ids=ids, use_cache=False).logits, backward=False)
    dims = language_dims(config.to_dict())
    assert language_flops(dims, [11], causal="full")[0] == counter


@pytest.mark.parametrize("name", VISION_MODELS)
def test_the_language_part_of_a_vision_model_is_found(name: str) -> None:
    dims = language_dims(VISION_MODELS[name][0]().to_dict())
    assert (dims.depth, dims.width, dims.mlp_width, dims.vocab_size) == (2, 32, 48, 101)
    assert (dims.num_heads, dims.num_kv_heads) == (4, 2)


def test_sliding_layers_follow_each_family() -> None:
    mistral = transformers.MistralConfig(**TEXT, sliding_window=4).to_dict()
    assert language_dims(mistral).sliding_layers == 2
    off = transformers.Qwen2Config(**TEXT, sliding_window=4, use_sliding_window=False).to_dict()
    assert language_dims(off).sliding_layers == 0
    upper = transformers.Qwen2Config(
        **TEXT, sliding_window=4, use_sliding_window=True, max_window_layers=1
    ).to_dict()
    assert language_dims(upper).sliding_layers == 1


def test_a_flat_configuration_of_the_hub_is_read() -> None:
    """Qwen2.5-VL-7B-Instruct as published: text at the top level, old key names."""
    config = {
        "model_type": "qwen2_5_vl",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "max_window_layers": 28,
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "sliding_window": 32768,
        "use_sliding_window": False,
        "vocab_size": 152064,
        "vision_config": {
            "depth": 32,
            "fullatt_block_indexes": [7, 15, 23, 31],
            "hidden_size": 1280,
            "in_chans": 3,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 3584,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "spatial_patch_size": 14,
            "temporal_patch_size": 2,
            "window_size": 112,
        },
    }
    cost = FlopsCost.from_config(config, vision_training="frozen")
    assert cost.vision is not None
    assert (cost.vision.window, cost.vision.windowed_layers) == (8, 28)
    assert cost.language.sliding_layers == 0
    assert cost.rule.name.startswith("qwen2.5-vl")
    assert cost.vision_training == "frozen"


def test_the_rule_takes_its_tile_sizes_from_the_configuration() -> None:
    rule = family_rule(VISION_MODELS["llava-siglip"][0]().to_dict())
    assert rule.name == "llava-1.5(image_size=56,patch_size=14,tokens_per_image=None)"
    rule = family_rule(VISION_MODELS["smolvlm"][0]().to_dict())
    assert "longest_side=224,tile_size=56,patch_size=14,tokens_per_tile=1" in rule.name
    rule = family_rule(VISION_MODELS["internvl"][0]().to_dict())
    assert rule.name.startswith("internvl(tile_size=56,patch_size=14")
    assert "tokens_per_tile=4" in rule.name
    assert family_rule(transformers.Qwen2AudioConfig().to_dict()).name.startswith("qwen2-audio")
    assert family_rule(VISION_MODELS["llava-pixtral"][0]().to_dict()).name.startswith("pixtral")


@pytest.mark.parametrize("key", sorted(set(TEXT) - {"num_key_value_heads"}))
def test_a_missing_dimension_is_named(key: str) -> None:
    config = {"model_type": "llama", **TEXT}
    del config[key]
    with pytest.raises(ArgumentError, match=rf"^config lacks {key} .*AutoConfig"):
        FlopsCost.from_config(config)


@pytest.mark.parametrize("key", ["depth", "out_hidden_size", "window_size", "patch_size"])
def test_a_missing_vision_dimension_is_named(key: str) -> None:
    config = VISION_MODELS["qwen2.5-vl"][0]().to_dict()
    del config["vision_config"][key]
    with pytest.raises(ArgumentError, match=rf"^vision_config lacks {key} "):
        FlopsCost.from_config(config)


def test_unknown_families_are_refused_with_those_known() -> None:
    with pytest.raises(ArgumentError, match=r"model_type 'blip'.*qwen2_5_vl.*VisionDims"):
        FlopsCost.from_config({"model_type": "blip", "vision_config": {}, "text_config": {}})
    with pytest.raises(ArgumentError, match=r"model_type 'gpt2'.*llama.*LanguageDims"):
        FlopsCost.from_config({"model_type": "gpt2"})


def test_audio_dimensions_are_read_and_missing_ones_named() -> None:
    config = transformers.VoxtralConfig().to_dict()
    dims = audio_dims(config)
    assert dims is not None
    assert (dims.depth, dims.mel_bins, dims.merge, dims.pool) == (32, 128, 4, 1)
    assert FlopsCost.from_config(config).audio == dims
    assert audio_dims({"model_type": "llama"}) is None
    with pytest.raises(ArgumentError, match=r"model_type 'other'.*qwen2_audio, voxtral"):
        audio_dims({**config, "model_type": "other"})
    del config["audio_config"]["num_mel_bins"]
    with pytest.raises(ArgumentError, match=r"^audio_config lacks num_mel_bins"):
        audio_dims(config)


@pytest.mark.parametrize("name", VISION_MODELS)
def test_a_cost_model_from_a_configuration_prices_an_image(name: str) -> None:
    cost = FlopsCost.from_config(VISION_MODELS[name][0]().to_dict())
    table = SampleTable.from_arrays(text_tokens=[3], image_heights=[[56]], image_widths=[[112]])
    costs = cost(table)
    assert costs.patches[0] > 0
    assert costs.tokens[0] > 3
    assert (costs.values > 0).all()
