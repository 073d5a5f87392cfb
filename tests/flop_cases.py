"""Models of transformers with real widths and few layers, for comparing FLOPs."""

from collections.abc import Callable, Iterator
from typing import Any, get_args

import torch
import transformers
from torch import nn
from transformers import AutoModel, AutoModelForMultimodalLM
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel,
)
from transformers.models.whisper.modeling_whisper import WhisperEncoder
from transformers.vision_utils import get_vision_position_ids

from balancer.flops.audio import audio_forward
from balancer.flops.config import audio_dims, language_dims, vision_dims
from balancer.flops.dimensions import AudioDims
from balancer.flops.forward import language_forward, projector_forward, vision_forward
from balancer.flops.lora import Adapted, Lora
from balancer.flops.training import Recompute
from tests.flop_oracles import (
    DIRECTIONS,
    Case,
    FlopRow,
    flop_row,
    lora_row,
    on_meta,
    projector_row,
)

__all__ = [
    "CASES",
    "LORA_TARGETS",
    "flop_rows",
    "language_case",
    "llama_lora_row",
    "projector_rows",
]


def language_case(name: str, config: Any, tokens: int) -> Case:
    """A causal language model on one sequence, logits of every token included."""

    def build() -> nn.Module:
        return on_meta(transformers.AutoModelForCausalLM.from_config, config)

    def run(model: nn.Module) -> torch.Tensor:
        ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
        mask = torch.zeros(1, 1, tokens, tokens, device="meta")
        embedded = model.get_input_embeddings()(ids)
        return model(inputs_embeds=embedded, attention_mask=mask, use_cache=False).logits

    dims = language_dims(config.to_dict())
    forward = language_forward(dims, [tokens], causal="full")
    return Case(name=name, build=build, run=run, entry="model.embed_tokens", parts=(forward,))


def llama() -> Case:
    config = transformers.LlamaConfig(num_hidden_layers=2)
    return language_case("Llama-2-7B, 2 layers", config, 1024)


def qwen2() -> Case:
    config = transformers.Qwen2Config(
        num_hidden_layers=2,
        hidden_size=3584,
        num_attention_heads=28,
        num_key_value_heads=4,
        intermediate_size=18944,
        vocab_size=152064,
    )
    return language_case("Qwen2.5-7B, 2 layers", config, 4096)


def mixtral() -> Case:
    config = transformers.MixtralConfig(num_hidden_layers=2, experts_implementation="batched_mm")
    return language_case("Mixtral-8x7B, 2 layers", config, 512)


def qwen2_moe() -> Case:
    config = transformers.Qwen2MoeConfig(
        num_hidden_layers=3, mlp_only_layers=[0], experts_implementation="batched_mm"
    )
    return language_case("Qwen1.5-MoE-A2.7B, 3 layers, 1 dense", config, 512)


def qwen3_moe() -> Case:
    config = transformers.Qwen3MoeConfig(num_hidden_layers=2, experts_implementation="batched_mm")
    return language_case("Qwen3-MoE, 2 layers", config, 512)


def qwen25_vision(grid: tuple[int, int, int]) -> Case:
    """The Qwen2.5-VL vision tower: 3 of 4 layers windowed, and its merger."""
    config = transformers.Qwen2_5_VLConfig(
        vision_config={"hidden_size": 1280, "depth": 4, "fullatt_block_indexes": [3]}
    )
    segments, rows, columns = grid
    thw = torch.tensor([grid])

    def build() -> nn.Module:
        return on_meta(Qwen2_5_VisionTransformerPretrainedModel, config.vision_config)

    def run(model: nn.Module) -> torch.Tensor:
        pixels = torch.empty(segments * rows * columns, 3 * 2 * 14 * 14, device="meta")
        places = get_vision_position_ids(thw, 2).to("meta")
        return model(pixels, grid_thw=thw, position_ids=places).pooler_output

    dims = vision_dims(config.to_dict())
    assert dims is not None
    parts = (
        vision_forward(dims, [segments], [rows], [columns]),
        projector_forward(dims, [segments * rows * columns]),
    )
    name = f"Qwen2.5-VL vision, 4 layers, {segments}x{rows}x{columns}"
    return Case(name=name, build=build, run=run, entry="patch_embed", parts=parts)


def tower(name: str, vision: Any, *, segments: int) -> Case:
    """A CLIP or SigLIP encoder without a projector, on square images."""
    side = vision.image_size // vision.patch_size
    config = transformers.LlavaConfig(vision_config=vision, text_config=transformers.LlamaConfig())
    dims = vision_dims(config.to_dict())
    assert dims is not None

    def build() -> nn.Module:
        return on_meta(AutoModel.from_config, vision)

    def run(model: nn.Module) -> torch.Tensor:
        pixels = torch.empty(segments, 3, vision.image_size, vision.image_size, device="meta")
        return model(pixel_values=pixels).last_hidden_state

    entry = "embeddings"
    parts = (vision_forward(dims, [segments], [side], [side]),)
    return Case(name=name, build=build, run=run, entry=entry, parts=parts)


def siglip() -> Case:
    config = transformers.SiglipVisionConfig(
        hidden_size=1152,
        intermediate_size=4304,
        num_hidden_layers=3,
        num_attention_heads=16,
        image_size=384,
        patch_size=14,
        vision_use_head=False,
    )
    return tower("SigLIP-so400m/14-384, 3 layers, 2 tiles", config, segments=2)


def clip() -> Case:
    config = transformers.CLIPVisionConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=3,
        num_attention_heads=16,
        image_size=336,
        patch_size=14,
    )
    return tower("CLIP-L/14-336, 3 layers, 5 tiles", config, segments=5)


def whisper() -> Case:
    """The encoder of Whisper large on two windows of 30 s."""
    config = transformers.WhisperConfig(
        d_model=1280,
        encoder_layers=3,
        encoder_attention_heads=20,
        encoder_ffn_dim=5120,
        num_mel_bins=128,
    )
    dims = AudioDims(depth=3, width=1280, num_heads=20, mlp_width=5120, mel_bins=128)

    def build() -> nn.Module:
        return on_meta(WhisperEncoder, config)

    def run(model: nn.Module) -> torch.Tensor:
        return model(torch.empty(2, 128, 3000, device="meta")).last_hidden_state

    parts = (audio_forward(dims, [2], [1500]),)
    return Case(
        name="Whisper large encoder, 3 layers", build=build, run=run, entry="conv1", parts=parts
    )


def audio_model(name: str, config: Any) -> Case:
    """The audio encoder and projector of a language model that listens, on two windows."""
    dims = audio_dims(config.to_dict())
    assert dims is not None

    def build() -> nn.Module:
        return on_meta(AutoModelForMultimodalLM.from_config, config)

    def run(model: nn.Module) -> torch.Tensor:
        sound = torch.empty(2, dims.mel_bins, 3000, device="meta")
        features = model.model.audio_tower(sound).last_hidden_state
        return model.model.multi_modal_projector(features.reshape(2, -1, dims.merge * dims.width))

    parts = (audio_forward(dims, [2], [1500]), projector_forward(dims, [3000]))
    entry = "model.audio_tower.conv1"
    return Case(name=name, build=build, run=run, entry=entry, parts=parts)


def qwen2_audio() -> Case:
    config = transformers.Qwen2AudioConfig(
        audio_config={"encoder_layers": 2}, text_config={"num_hidden_layers": 1}
    )
    return audio_model("Qwen2-Audio encoder, 2 layers", config)


def voxtral() -> Case:
    config = transformers.VoxtralConfig(
        audio_config={"num_hidden_layers": 2}, text_config={"num_hidden_layers": 1}
    )
    return audio_model("Voxtral encoder, 2 layers", config)


CASES: dict[str, Callable[[], Case]] = {
    "llama": llama,
    "qwen2": qwen2,
    "mixtral": mixtral,
    "qwen2-moe": qwen2_moe,
    "qwen3-moe": qwen3_moe,
    "qwen2.5-vl-image": lambda: qwen25_vision((1, 46, 78)),
    "qwen2.5-vl-video": lambda: qwen25_vision((4, 20, 30)),
    "siglip": siglip,
    "clip": clip,
    "whisper": whisper,
    "qwen2-audio": qwen2_audio,
    "voxtral": voxtral,
}
"""The cases by a short name."""

LORA_TARGETS: tuple[tuple[Adapted, ...], ...] = (("q", "v"), get_args(Adapted))
"""Adapters on two matrices of a layer, and on all seven."""


def llama_lora_row(targets: tuple[Adapted, ...], recompute: Recompute) -> FlopRow:
    """Llama with adapters of rank 16."""
    dims = language_dims(transformers.LlamaConfig(num_hidden_layers=2).to_dict())
    return lora_row(llama(), dims, Lora(rank=16, targets=targets), recompute)


def projector_rows() -> Iterator[FlopRow]:
    """A projector alone trained: with a norm before it (Qwen2.5-VL), and without (Voxtral)."""
    config = transformers.Qwen2_5_VLConfig(vision_config={"hidden_size": 1280}).to_dict()
    vision, audio = vision_dims(config), audio_dims(transformers.VoxtralConfig().to_dict())
    assert vision is not None
    assert audio is not None
    alone = projector_forward(vision, [46 * 78], encoder_trains=False)
    yield projector_row(qwen25_vision((1, 46, 78)), "merger", alone)
    alone = projector_forward(audio, [3000], encoder_trains=False)
    yield projector_row(voxtral(), "model.multi_modal_projector", alone)


def flop_rows() -> Iterator[FlopRow]:
    """Every model in every direction, adapters and lone projectors; about half a minute."""
    for make in CASES.values():
        for direction in DIRECTIONS:
            yield flop_row(make(), direction)
    for targets in LORA_TARGETS:
        for recompute in get_args(Recompute):
            yield llama_lora_row(targets, recompute)
    yield from projector_rows()
