"""FlopsCost: the cost model that prices samples by the FLOPs of a model of given dimensions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.flops.audio import audio_forward
from balancer.flops.config import audio_dims, family_rule, language_dims, vision_dims
from balancer.flops.dimensions import AudioDims, LanguageDims, VisionDims
from balancer.flops.forward import (
    Causal,
    ForwardFlops,
    language_forward,
    projector_forward,
    vision_forward,
)
from balancer.flops.lora import Lora, adapter_forward, lora_training_flops
from balancer.flops.training import Recompute, Training, training_flops
from balancer.sample_media import sum_by_sample, table_media
from balancer.samples import SampleTable
from balancer.tokens import MediaCounts, TokenRule

__all__ = ["FlopsCost"]

_FLOAT = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopsCost:
    """Training FLOPs of each sample in each module; a cost model that needs no measurement.

    A sample is one sequence of its text tokens and the tokens of its media. Attention is quadratic
    in that sequence, and in each image tile or frame; samples packed together do not attend to
    each other. FLOPs are not time: small sequences run at lower efficiency, which measured
    coefficients (`balancer.calibrate`) account for.

    Attributes:
        language: Dimensions of the language model.
        rule: Token rule of the model's processor.
        vision: Dimensions of the vision encoder; `None` leaves out the module, but not the tokens
            (features computed beforehand).
        audio: Dimensions of the audio encoder; `None` as for vision.
        vision_training: How the vision encoder trains.
        audio_training: How the audio encoder trains.
        projector_training: How the projectors train; they are part of the encoder's module.
        language_training: How the language model trains, its vocabulary layer included.
        language_lora: Low-rank adapters of a language model that is `"frozen_with_grad"`.
        recompute: Which activations the backward pass computes again.
        causal: Whether causal attention costs the visible pairs, or the full square.
        attention_backward: Backward of attention in forwards; 2.5 for FlashAttention.

    Raises:
        ArgumentError: A choice is not one of those allowed.

    Example:
        >>> from balancer.tokens import token_rule
        >>> cost = FlopsCost(rule=token_rule("text-only"), language=LanguageDims(
        ...     depth=2, width=64, num_heads=4, mlp_width=128, vocab_size=1000))
        >>> costs = cost(SampleTable.from_lengths([1024, 512]))
        >>> costs.modules, bool(costs.values[0, 0] > 2 * costs.values[1, 0])
        (('language',), True)
    """

    language: LanguageDims
    rule: TokenRule
    vision: VisionDims | None = None
    audio: AudioDims | None = None
    vision_training: Training = "trained"
    audio_training: Training = "trained"
    projector_training: Training = "trained"
    language_training: Training = "trained"
    language_lora: Lora | None = None
    recompute: Recompute = "none"
    causal: Causal = "half"
    attention_backward: float = 2.0

    def __post_init__(self) -> None:
        for name in ("vision", "audio", "projector", "language"):
            _check_choice(f"{name}_training", getattr(self, f"{name}_training"), Training)
        _check_choice("recompute", self.recompute, Recompute)
        _check_choice("causal", self.causal, Causal)
        if self.language_lora is not None:
            if self.language_training != "frozen_with_grad":
                raise ArgumentError(
                    f"language_training is {self.language_training!r}; allowed with language_lora: "
                    "'frozen_with_grad'"
                )
            adapter_forward(self.language, self.language_lora, np.zeros(0))
        if not 0 <= self.attention_backward < float("inf"):
            raise ArgumentError(
                f"attention_backward is {self.attention_backward!r}; allowed: numbers >= 0"
            )

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, rule: TokenRule | None = None, **options: Any
    ) -> "FlopsCost":
        """Cost model of a Hugging Face model from its `config.json` as a dictionary.

        Reads Qwen2-VL, 2.5-VL and 3-VL, LLaVA, LLaVA-NeXT and LLaVA-OneVision, Idefics3 and
        SmolVLM, InternVL, Pixtral, Mistral 3, Qwen2-Audio, Voxtral, and text models of the Llama
        kind, dense or mixture of experts.

        Args:
            config: The whole dictionary, `text_config`, `vision_config` and `audio_config` nested
                as saved.
            rule: Token rule; the family's own, with its default pixel budget, when `None`.
            options: Other attributes of the cost model, `vision_training` for example.

        Raises:
            ArgumentError: The family is not known, or a dimension is missing.

        Example:
            >>> cost = FlopsCost.from_config({
            ...     "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
            ...     "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100})
            >>> cost.rule.name
            'text-only()'
        """
        return cls(
            vision=vision_dims(config),
            audio=audio_dims(config),
            language=language_dims(config),
            rule=family_rule(config) if rule is None else rule,
            **options,
        )

    def __call__(self, table: SampleTable) -> Costs:
        """Costs of every sample of the table, unit `"flops"`.

        Samples with a size or medium that the token rule does not take are listed in `illegal`.
        """
        num = len(table)
        media = table_media(table, self.rule)
        tokens = table.text_tokens + _sum_by(media.visual_owners, media.visual.tokens, num)
        tokens = tokens + _sum_by(media.clip_owners, media.clips.tokens, num)
        columns: dict[str, _FLOAT] = {}
        if self.vision is not None:
            vision = self._vision_flops(self.vision, media.visual)
            columns["vision"] = sum_by_sample(media.visual_owners, vision, num)
        if self.audio is not None:
            audio = self._audio_flops(self.audio, media.clips)
            columns["audio"] = sum_by_sample(media.clip_owners, audio, num)
        columns["language"] = self._language_flops(tokens)
        return Costs(
            modules=tuple(columns),
            values=np.stack(list(columns.values()), axis=1),
            tokens=tokens,
            patches=_sum_by(media.visual_owners, media.visual.patches, num),
            images=table.num_images,
            target_tokens=table.target_tokens,
            unit="flops",
            illegal=media.illegal,
            illegal_because=media.illegal_because,
        )

    def _language_flops(self, tokens: NDArray[np.int64]) -> _FLOAT:
        forward = language_forward(self.language, tokens, causal=self.causal)
        if self.language_lora is not None:
            return lora_training_flops(
                self.language,
                self.language_lora,
                tokens,
                forward,
                recompute=self.recompute,
                attention_backward=self.attention_backward,
            )
        return training_flops(
            forward,
            self.language_training,
            recompute=self.recompute,
            attention_backward=self.attention_backward,
        )

    def _vision_flops(self, dims: VisionDims, media: MediaCounts) -> _FLOAT:
        forward = vision_forward(dims, media.segments, media.grid_heights, media.grid_widths)
        return self._encoder_flops(dims, forward, media.patches, self.vision_training)

    def _audio_flops(self, dims: AudioDims, clips: MediaCounts) -> _FLOAT:
        forward = audio_forward(dims, clips.segments, clips.grid_widths)
        return self._encoder_flops(dims, forward, clips.patches, self.audio_training)

    def _encoder_flops(
        self,
        dims: VisionDims | AudioDims,
        encoder: ForwardFlops,
        patches: NDArray[np.int64],
        training: Training,
    ) -> _FLOAT:
        """Training FLOPs of an encoder and the projector behind it, for each media item."""
        projector = projector_forward(dims, patches, encoder_trains=training != "frozen")
        return training_flops(
            encoder,
            training,
            recompute=self.recompute,
            attention_backward=self.attention_backward,
        ) + training_flops(projector, self.projector_training)


def _check_choice(name: str, value: object, choices: Any) -> None:
    if value not in get_args(choices):
        raise ArgumentError(
            f"{name} is {value!r}; allowed: {', '.join(map(repr, get_args(choices)))}"
        )


def _sum_by(
    owners: NDArray[np.int64], counts: NDArray[np.int64], num_samples: int
) -> NDArray[np.int64]:
    """Sum of the counts of each sample's items, exact below 2**53."""
    return sum_by_sample(owners, counts, num_samples).astype(np.int64)
