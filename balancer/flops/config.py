"""Dimensions of a model from its Hugging Face `config.json`, read as a plain dictionary."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from balancer.errors import ArgumentError
from balancer.flops.config_keys import Config, number, optional, present, side, whole
from balancer.flops.dimensions import AudioDims, LanguageDims, VisionDims
from balancer.tokens import TokenRule, token_rule

__all__ = ["audio_dims", "family_rule", "language_dims", "vision_dims"]

_RULES = {
    "idefics3": "idefics3",
    "internvl": "internvl",
    "llava": "llava-1.5",
    "llava_next": "llava-next",
    "llava_onevision": "llava-onevision",
    "mistral3": "mistral-small-3.1",
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
    the family's defaults. A model without an encoder takes no media.

    Raises:
        ArgumentError: The model has a vision part of a family without a rule.

    Example:
        >>> family_rule({"model_type": "llama"}).name
        'text-only()'
    """
    if "vision_config" not in config:
        listens = config.get("model_type") == "qwen2_audio"
        return token_rule("qwen2-audio" if listens else "text-only")
    name, vision = _RULES[_family(config)], config["vision_config"]
    if vision.get("model_type") == "pixtral" and name == "llava-1.5":
        return token_rule("pixtral")
    return token_rule(name, **_rule_settings(name, config))


def _rule_settings(name: str, config: Config) -> dict[str, Any]:
    """Sizes of tiles and patches, where the family has tiles, and the tokens of a tile."""
    vision = config["vision_config"]
    if name not in (
        "idefics3",
        "internvl",
        "llava-1.5",
        "llava-next",
        "llava-onevision",
        "smolvlm",
    ):
        return {}
    tile, patch = side(vision, "image_size"), side(vision, "patch_size")
    if name == "llava-1.5":
        return {"image_size": tile, "patch_size": patch}
    settings: dict[str, Any] = {"tile_size": tile, "patch_size": patch}
    if name.startswith("llava") and config.get("image_grid_pinpoints"):
        settings["grid_pinpoints"] = tuple(map(tuple, config["image_grid_pinpoints"]))
    if not name.startswith("llava"):
        merge, _ = _projector(config, 0, 0)
        settings["tokens_per_tile"] = (tile // patch) ** 2 // merge
    if name in ("idefics3", "smolvlm"):
        settings["longest_side"] = 4 * tile  # as all published processors of the family have it
    return settings


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
    depth = whole(text, where, "num_hidden_layers")
    experts = optional(text, "num_experts", "num_local_experts") or 0
    dense_layers = _dense_layers(text, depth) if experts else 0
    mlp_width = whole(text, where, "intermediate_size")
    return LanguageDims(
        depth=depth,
        width=whole(text, where, "hidden_size"),
        num_heads=whole(text, where, "num_attention_heads"),
        num_kv_heads=optional(text, "num_key_value_heads"),
        head_dim=optional(text, "head_dim"),
        mlp_width=mlp_width,
        gated_mlp=True,
        vocab_size=optional(text, "vocab_size") or whole(config, "config", "vocab_size"),
        num_experts=experts,
        experts_per_token=whole(text, where, "num_experts_per_tok") if experts else 0,
        expert_width=(optional(text, "moe_intermediate_size") or mlp_width) if experts else 0,
        shared_expert_width=optional(text, "shared_expert_intermediate_size") or 0,
        shared_expert_gate=bool(optional(text, "shared_expert_intermediate_size")),
        dense_layers=dense_layers,
        sliding_window=optional(text, "sliding_window"),
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


def audio_dims(config: Config) -> AudioDims | None:
    """Dimensions of the audio encoder and its projector; `None` for a model without one.

    Raises:
        ArgumentError: The family is not known, or a dimension is missing.
    """
    if "audio_config" not in config:
        return None
    audio, model_type = config["audio_config"], config.get("model_type")
    where, text = _text_config(config)
    text_width = whole(text, where, "hidden_size")
    if model_type not in ("qwen2_audio", "voxtral"):
        raise ArgumentError(
            f"config has model_type {model_type!r}; known models with an audio part: qwen2_audio, "
            "voxtral; for others give AudioDims yourself"
        )
    width = whole(audio, "audio_config", "d_model", "hidden_size")
    mlp_width = whole(audio, "audio_config", "encoder_ffn_dim", "intermediate_size")
    pooled = model_type == "qwen2_audio"  # averages pairs; Voxtral joins positions to mlp_width
    return AudioDims(
        depth=whole(audio, "audio_config", "encoder_layers", "num_hidden_layers"),
        width=width,
        num_heads=whole(audio, "audio_config", "encoder_attention_heads", "num_attention_heads"),
        mlp_width=mlp_width,
        mel_bins=whole(audio, "audio_config", "num_mel_bins"),
        pool=2 if pooled else 1,
        merge=1 if pooled else mlp_width // width,
        projector_widths=(text_width,) if pooled else (text_width, text_width),
    )


def _qwen2_vision(vision: Config, config: Config) -> VisionDims:
    """Qwen2-VL calls the encoder's width `embed_dim`; `hidden_size` is that of the language."""
    width = whole(vision, "vision_config", "embed_dim")
    mlp_width = int(width * number(vision, "vision_config", "mlp_ratio"))
    return _qwen(vision, width, mlp_width, whole(vision, "vision_config", "hidden_size"))


def _qwen25_vision(vision: Config, config: Config) -> VisionDims:
    dims = _qwen_hidden(vision)
    patch = side(vision, "patch_size", "spatial_patch_size")
    full = present(vision, "vision_config", "fullatt_block_indexes")
    return replace(
        dims,
        gated_mlp=True,
        window=whole(vision, "vision_config", "window_size") // patch,
        full_attention_layers=len(full),
    )


def _qwen3_vision(vision: Config, config: Config) -> VisionDims:
    deepstack = present(vision, "vision_config", "deepstack_visual_indexes")
    return replace(_qwen_hidden(vision), num_projectors=1 + len(deepstack))


def _qwen_hidden(vision: Config) -> VisionDims:
    width = whole(vision, "vision_config", "hidden_size")
    mlp_width = whole(vision, "vision_config", "intermediate_size")
    return _qwen(vision, width, mlp_width, whole(vision, "vision_config", "out_hidden_size"))


def _qwen(vision: Config, width: int, mlp_width: int, out_width: int) -> VisionDims:
    merge = whole(vision, "vision_config", "spatial_merge_size") ** 2
    patch = side(vision, "patch_size", "spatial_patch_size")
    frames = whole(vision, "vision_config", "temporal_patch_size")
    channels = optional(vision, "in_channels", "in_chans") or 3
    return VisionDims(
        depth=whole(vision, "vision_config", "depth"),
        width=width,
        num_heads=whole(vision, "vision_config", "num_heads"),
        mlp_width=mlp_width,
        patch_values=channels * frames * patch**2,
        merge=merge,
        projector_widths=(merge * width, out_width),
        projector_norm=True,
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
    width = whole(vision, "vision_config", "hidden_size")
    where, text = _text_config(config)
    merge, projector_widths = _projector(config, width, whole(text, where, "hidden_size"))
    patch = side(vision, "patch_size")
    return VisionDims(
        depth=whole(vision, "vision_config", "num_hidden_layers"),
        width=width,
        num_heads=whole(vision, "vision_config", "num_attention_heads"),
        mlp_width=whole(vision, "vision_config", "intermediate_size"),
        gated_mlp=tower == "pixtral",
        patch_values=(optional(vision, "num_channels") or 3) * patch**2,
        merge=merge,
        projector_widths=projector_widths,
        projector_norm=config["model_type"] in ("internvl", "mistral3"),
        prefix_tokens=1 if tower in ("clip_vision_model", "internvl_vision") else 0,
    )


def _projector(config: Config, width: int, text_width: int) -> tuple[int, tuple[int, ...]]:
    """Patches joined before the projector, and the outputs of its linear layers."""
    model_type = config["model_type"]
    if model_type in ("idefics3", "smolvlm"):  # pixel shuffle, one linear layer
        return whole(config, "config", "scale_factor") ** 2, (text_width,)
    if model_type == "internvl":  # pixel shuffle by `downsample_ratio`, two linear layers
        ratio = number(config, "config", "downsample_ratio")
        return round(1 / ratio) ** 2, (text_width, text_width)
    if model_type == "mistral3":  # a merging layer back to the encoder's width, then two
        merge = whole(config, "config", "spatial_merge_size") ** 2
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
    step = optional(text, "decoder_sparse_step") or 1
    return sum(layer in listed or (layer + 1) % step != 0 for layer in range(depth))


def _sliding_layers(text: Config, depth: int) -> int:
    if optional(text, "sliding_window") is None or text.get("use_sliding_window") is False:
        return 0
    if text.get("layer_types"):
        return sum(kind == "sliding_attention" for kind in text["layer_types"])
    return max(0, depth - (optional(text, "max_window_layers") or 0))
