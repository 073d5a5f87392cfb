"""Dimensions of a model from its Hugging Face `config.json`, read as a plain dictionary."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from balancer.dimensions import LanguageDims, VisionDims
from balancer.errors import ArgumentError
from balancer.tokens import TokenRule, token_rule

__all__ = ["family_rule", "language_dims", "vision_dims"]

Config = Mapping[str, Any]

_RULES = {
    "idefics3": "idefics3",
    "internvl": "internvl",
    "llava": "llava-1.5",
    "llava_next": "llava-next",
    "mistral3": "mistral-small-3.1",
    "pixtral": "pixtral",
    "qwen2_5_vl": "qwen2.5-vl",
    "qwen2_vl": "qwen2-vl",
    "qwen3_vl": "qwen3-vl",
    "qwen3_vl_moe": "qwen3-vl",
    "smolvlm": "smolvlm",
}

_GATED_TEXT = (
    "gemma", "llama", "ministral", "mistral", "mixtral", "olmo2", "qwen2", "qwen2_5_vl",
    "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen3", "qwen3_moe",
    "qwen3_vl_moe_text", "qwen3_vl_text", "smollm3",
)  # fmt: skip
"""Language models with one attention kind and a gated MLP, which the formulas describe."""


def family_rule(config: Config) -> TokenRule:
    """Token rule of the model's family, with the tile and patch sizes of the configuration.

    Pixel budgets and frame rates are not in a `config.json` (they are the processor's): they are
    the family's defaults. A model without a vision part takes no media.

    Raises:
        ArgumentError: The model has a vision part of a family without a rule.

    Example:
        >>> family_rule({"model_type": "llama"}).name
        'text-only()'
    """
    if "vision_config" not in config:
        return token_rule("text-only")
    name, vision = _RULES[_family(config)], config["vision_config"]
    if vision.get("model_type") == "pixtral" and name == "llava-1.5":
        return token_rule("pixtral")
    settings: dict[str, Any] = {}
    if name in ("internvl", "llava-1.5", "llava-next"):
        side = "image_size" if name == "llava-1.5" else "tile_size"
        settings = {side: _side(vision, "image_size"), "patch_size": _side(vision, "patch_size")}
    if name == "llava-next" and config.get("image_grid_pinpoints"):
        settings["grid_pinpoints"] = tuple(map(tuple, config["image_grid_pinpoints"]))
    return token_rule(name, **settings)


def language_dims(config: Config) -> LanguageDims:
    """Dimensions of the language model, at the top level or under `text_config`.

    Raises:
        ArgumentError: The architecture is not known here, or a dimension is missing; the message
            names its keys and how to fill them in.

    Example:
        >>> language_dims({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        ...                "num_attention_heads": 4, "intermediate_size": 128,
        ...                "vocab_size": 100}).depth
        2
    """
    where, text = _text_config(config)
    if text.get("model_type") not in _GATED_TEXT:
        raise ArgumentError(
            f"{where} has model_type {text.get('model_type')!r}; known language models: "
            f"{', '.join(_GATED_TEXT)}; for others give LanguageDims yourself"
        )
    depth = _whole(text, where, "num_hidden_layers")
    experts = _optional(text, "num_experts", "num_local_experts") or 0
    dense_layers = _dense_layers(text, depth) if experts else 0
    mlp_width = _whole(text, where, "intermediate_size")
    return LanguageDims(
        depth=depth,
        width=_whole(text, where, "hidden_size"),
        num_heads=_whole(text, where, "num_attention_heads"),
        num_kv_heads=_optional(text, "num_key_value_heads"),
        head_dim=_optional(text, "head_dim"),
        mlp_width=mlp_width,
        gated_mlp=True,
        vocab_size=_optional(text, "vocab_size") or _whole(config, "config", "vocab_size"),
        num_experts=experts,
        experts_per_token=_whole(text, where, "num_experts_per_tok") if experts else 0,
        expert_width=(_optional(text, "moe_intermediate_size") or mlp_width) if experts else 0,
        shared_expert_width=_optional(text, "shared_expert_intermediate_size") or 0,
        shared_expert_gate=bool(_optional(text, "shared_expert_intermediate_size")),
        dense_layers=dense_layers,
        sliding_window=_optional(text, "sliding_window"),
        sliding_layers=_sliding_layers(text, depth),
    )


def vision_dims(config: Config) -> VisionDims | None:
    """Dimensions of the vision transformer and its projector; `None` for a text model.

    Raises:
        ArgumentError: The family is not known, or a dimension is missing.
    """
    if "vision_config" not in config:
        return None
    model_type = _family(config)
    reader = _QWEN.get(model_type, _tower)
    return reader(config["vision_config"], config)


def _qwen2_vision(vision: Config, config: Config) -> VisionDims:
    """Qwen2-VL calls the encoder's width `embed_dim`; `hidden_size` is that of the language."""
    width = _whole(vision, "vision_config", "embed_dim")
    mlp_width = int(width * _number(vision, "vision_config", "mlp_ratio"))
    return _qwen(vision, width, mlp_width, _whole(vision, "vision_config", "hidden_size"))


def _qwen25_vision(vision: Config, config: Config) -> VisionDims:
    dims = _qwen_hidden(vision)
    patch = _side(vision, "patch_size", "spatial_patch_size")
    full = _present(vision, "vision_config", "fullatt_block_indexes")
    return replace(
        dims,
        gated_mlp=True,
        window=_whole(vision, "vision_config", "window_size") // patch,
        full_attention_layers=len(full),
    )


def _qwen3_vision(vision: Config, config: Config) -> VisionDims:
    deepstack = _present(vision, "vision_config", "deepstack_visual_indexes")
    return replace(_qwen_hidden(vision), num_projectors=1 + len(deepstack))


def _qwen_hidden(vision: Config) -> VisionDims:
    width = _whole(vision, "vision_config", "hidden_size")
    mlp_width = _whole(vision, "vision_config", "intermediate_size")
    return _qwen(vision, width, mlp_width, _whole(vision, "vision_config", "out_hidden_size"))


def _qwen(vision: Config, width: int, mlp_width: int, out_width: int) -> VisionDims:
    merge = _whole(vision, "vision_config", "spatial_merge_size") ** 2
    patch = _side(vision, "patch_size", "spatial_patch_size")
    frames = _whole(vision, "vision_config", "temporal_patch_size")
    channels = _optional(vision, "in_channels", "in_chans") or 3
    return VisionDims(
        depth=_whole(vision, "vision_config", "depth"),
        width=width,
        num_heads=_whole(vision, "vision_config", "num_heads"),
        mlp_width=mlp_width,
        patch_values=channels * frames * patch**2,
        merge=merge,
        projector_widths=(merge * width, out_width),
    )


_QWEN: dict[str, Callable[[Config, Config], VisionDims]] = {
    "qwen2_5_vl": _qwen25_vision,
    "qwen2_vl": _qwen2_vision,
    "qwen3_vl": _qwen3_vision,
    "qwen3_vl_moe": _qwen3_vision,
}


def _tower(vision: Config, config: Config) -> VisionDims:
    """CLIP, SigLIP, InternViT or Pixtral encoder with the projector of the family around it."""
    tower = str(vision.get("model_type"))
    width = _whole(vision, "vision_config", "hidden_size")
    where, text = _text_config(config)
    merge, projector_widths = _projector(config, width, _whole(text, where, "hidden_size"))
    patch = _side(vision, "patch_size")
    return VisionDims(
        depth=_whole(vision, "vision_config", "num_hidden_layers"),
        width=width,
        num_heads=_whole(vision, "vision_config", "num_attention_heads"),
        mlp_width=_whole(vision, "vision_config", "intermediate_size"),
        gated_mlp=tower == "pixtral",
        patch_values=(_optional(vision, "num_channels") or 3) * patch**2,
        merge=merge,
        projector_widths=projector_widths,
        prefix_tokens=1 if tower in ("clip_vision_model", "internvl_vision") else 0,
    )


def _projector(config: Config, width: int, text_width: int) -> tuple[int, tuple[int, ...]]:
    """Patches joined before the projector, and the outputs of its linear layers."""
    model_type = config["model_type"]
    if model_type in ("idefics3", "smolvlm"):  # pixel shuffle, one linear layer
        return _whole(config, "config", "scale_factor") ** 2, (text_width,)
    if model_type == "internvl":  # pixel shuffle by `downsample_ratio`, two linear layers
        ratio = _number(config, "config", "downsample_ratio")
        return round(1 / ratio) ** 2, (text_width, text_width)
    if model_type == "mistral3":  # a merging layer back to the encoder's width, then two
        merge = _whole(config, "config", "spatial_merge_size") ** 2
        return merge, (width, text_width, text_width)
    return 1, (text_width, text_width)


def _family(config: Config) -> str:
    model_type = str(config.get("model_type"))
    if model_type not in _RULES:
        raise ArgumentError(
            f"config has model_type {model_type!r}; known models with a vision part: "
            f"{', '.join(sorted(_RULES))}; for others give VisionDims and LanguageDims yourself"
        )
    return model_type


def _text_config(config: Config) -> tuple[str, Config]:
    for key in ("text_config", "llm_config"):
        if isinstance(config.get(key), Mapping):
            return key, config[key]
    return "config", config


def _dense_layers(text: Config, depth: int) -> int:
    """Layers without experts: those listed, and those between the sparse steps (Qwen-MoE)."""
    listed = set(text.get("mlp_only_layers") or ())
    step = _optional(text, "decoder_sparse_step") or 1
    return sum(layer in listed or (layer + 1) % step != 0 for layer in range(depth))


def _sliding_layers(text: Config, depth: int) -> int:
    if _optional(text, "sliding_window") is None or text.get("use_sliding_window") is False:
        return 0
    if text.get("layer_types"):
        return sum(kind == "sliding_attention" for kind in text["layer_types"])
    return max(0, depth - (_optional(text, "max_window_layers") or 0))


def _present(config: Config, where: str, *keys: str) -> Any:
    for key in keys:
        if config.get(key) is not None:
            return config[key]
    raise ArgumentError(
        f"{where} lacks {' or '.join(keys)} (model_type {config.get('model_type')!r}); a saved "
        "config.json leaves out what equals the defaults of its class: pass "
        "AutoConfig.from_pretrained(path).to_dict() of transformers, or add the key"
    )


def _number(config: Config, where: str, key: str) -> float:
    return float(_present(config, where, key))


def _whole(config: Config, where: str, *keys: str) -> int:
    return int(_present(config, where, *keys))


def _optional(config: Config, *keys: str) -> int | None:
    for key in keys:
        if config.get(key) is not None:
            return int(config[key])
    return None


def _side(vision: Config, *keys: str) -> int:
    """Side of a square patch, given as one number or as (height, width)."""
    value = _present(vision, "vision_config", *keys)
    sides = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
    return int(prod(sides) ** 0.5)
