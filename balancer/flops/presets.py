"""Ready cost models of published models, dimensions as in their `config.json`."""

from collections.abc import Callable
from types import MappingProxyType

from balancer.errors import ArgumentError
from balancer.flops.cost import FlopsCost
from balancer.flops.dimensions import LanguageDims, VisionDims
from balancer.tokens import token_rule

__all__ = ["PRESETS", "preset"]


def _qwen25_vl(language: LanguageDims) -> FlopsCost:
    """Qwen2.5-VL: one vision tower for all sizes but for the output of its merger."""
    vision = VisionDims(
        depth=32,
        width=1280,
        num_heads=16,
        mlp_width=3420,
        gated_mlp=True,
        patch_values=3 * 2 * 14 * 14,
        merge=4,
        projector_widths=(4 * 1280, language.width),
        projector_norm=True,
        window=112 // 14,
        full_attention_layers=4,
    )
    return FlopsCost(vision=vision, language=language, rule=token_rule("qwen2.5-vl"))


def _qwen25_vl_3b() -> FlopsCost:
    """Qwen/Qwen2.5-VL-3B-Instruct, config.json."""
    return _qwen25_vl(
        LanguageDims(
            depth=36,
            width=2048,
            num_heads=16,
            num_kv_heads=2,
            mlp_width=11008,
            vocab_size=151936,
        )
    )


def _qwen25_vl_7b() -> FlopsCost:
    """Qwen/Qwen2.5-VL-7B-Instruct, config.json."""
    return _qwen25_vl(
        LanguageDims(
            depth=28,
            width=3584,
            num_heads=28,
            num_kv_heads=4,
            mlp_width=18944,
            vocab_size=152064,
        )
    )


def _smolvlm_2b() -> FlopsCost:
    """HuggingFaceTB/SmolVLM-Instruct, config.json."""
    vision = VisionDims(
        depth=27,
        width=1152,
        num_heads=16,
        mlp_width=4304,
        patch_values=3 * 14 * 14,
        merge=9,
        projector_widths=(2048,),
    )
    language = LanguageDims(
        depth=24,
        width=2048,
        num_heads=32,
        mlp_width=8192,
        vocab_size=49155,
    )
    rule = token_rule(
        "smolvlm", longest_side=1536, tile_size=384, patch_size=14, tokens_per_tile=81
    )
    return FlopsCost(vision=vision, language=language, rule=rule)


def _text_7b() -> FlopsCost:
    """meta-llama/Llama-2-7b-hf, config.json (the defaults of `LlamaConfig` in transformers)."""
    language = LanguageDims(
        depth=32,
        width=4096,
        num_heads=32,
        mlp_width=11008,
        vocab_size=32000,
    )
    return FlopsCost(language=language, rule=token_rule("text-only"))


_PRESETS: dict[str, Callable[[], FlopsCost]] = {
    "qwen2.5-vl-3b": _qwen25_vl_3b,
    "qwen2.5-vl-7b": _qwen25_vl_7b,
    "smolvlm-2b": _smolvlm_2b,
    "text-7b": _text_7b,
}

PRESETS: MappingProxyType[str, Callable[[], FlopsCost]] = MappingProxyType(_PRESETS)
"""The known presets: name to a callable that builds the cost model, every module trained."""


def preset(name: str) -> FlopsCost:
    """The cost model of a published model; change its attributes with `dataclasses.replace`.

    Raises:
        ArgumentError: The preset is not known; the message lists those that are.

    Example:
        >>> from dataclasses import replace
        >>> frozen_tower = replace(preset("qwen2.5-vl-7b"), vision_training="frozen")
        >>> frozen_tower.language.depth
        28
    """
    if name not in PRESETS:
        raise ArgumentError(
            f"name is {name!r}; known presets: {', '.join(PRESETS)}; for another model use "
            "FlopsCost.from_config with its config.json"
        )
    return PRESETS[name]()
