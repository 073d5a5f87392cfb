"""FlopsCost: the cost model that prices samples by the FLOPs of a model of given dimensions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from balancer.audio_flops import audio_forward
from balancer.cost import Costs
from balancer.dimensions import AudioDims, LanguageDims, VisionDims
from balancer.errors import ArgumentError, SampleError
from balancer.flops import (
    Causal,
    ForwardFlops,
    language_forward,
    projector_forward,
    vision_forward,
)
from balancer.lora_flops import Lora, adapter_forward, lora_training_flops
from balancer.model_config import audio_dims, family_rule, language_dims, vision_dims
from balancer.samples import SampleTable
from balancer.tokens import MediaCounts, TokenRule, illegal_media
from balancer.training_flops import Recompute, Training, training_flops

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

        Raises:
            SampleError: The token rule does not accept a size; names the samples.
        """
        num = len(table)
        visual_owner, visual = self._visual_media(table)
        clip_owner, clips = self._clips(table)
        tokens = table.text_tokens + _sum_by(visual_owner, visual.tokens, num)
        tokens = tokens + _sum_by(clip_owner, clips.tokens, num)
        columns: dict[str, _FLOAT] = {}
        if self.vision is not None:
            vision = self._vision_flops(self.vision, visual)
            columns["vision"] = _sum_flops(visual_owner, vision, num)
        if self.audio is not None:
            audio = self._audio_flops(self.audio, clips)
            columns["audio"] = _sum_flops(clip_owner, audio, num)
        columns["language"] = self._language_flops(tokens)
        return Costs(
            modules=tuple(columns),
            values=np.stack(list(columns.values()), axis=1),
            tokens=tokens,
            patches=_sum_by(visual_owner, visual.patches, num),
            images=table.num_images,
            target_tokens=table.target_tokens,
            unit="flops",
        )

    def _visual_media(self, table: SampleTable) -> tuple[NDArray[np.int64], MediaCounts]:
        """Owner and counts of every image, then of every video."""
        heights, widths = table.image_heights, table.image_widths
        owner = _owners(table.image_offsets)
        images = self.rule.images(heights, widths) if owner.size else illegal_media(0)
        _check_legal(images, owner, f"{self.rule.name} takes no image of", heights, widths)
        heights, widths = table.video_heights, table.video_widths
        video_owner = _owners(table.video_offsets)
        videos = illegal_media(0)
        if video_owner.size:
            videos = self.rule.videos(table.video_frames, table.video_fps, heights, widths)
        _check_legal(videos, video_owner, f"{self.rule.name} takes no video of", heights, widths)
        return np.concatenate([owner, video_owner]), _joined(images, videos)

    def _clips(self, table: SampleTable) -> tuple[NDArray[np.int64], MediaCounts]:
        """Owner and counts of every audio clip."""
        owner = _owners(table.audio_offsets)
        clips = self.rule.audio(table.audio_seconds) if owner.size else illegal_media(0)
        _check_legal(
            clips, owner, f"{self.rule.name} takes no audio of", table.audio_seconds, unit="s"
        )
        return owner, clips

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


def _owners(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sample of each media item, from where each sample's items begin."""
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def _sum_by(
    owners: NDArray[np.int64], counts: NDArray[np.int64], num_samples: int
) -> NDArray[np.int64]:
    """Sum of the counts of each sample's items, exact below 2**53."""
    return np.bincount(owners, counts, num_samples).astype(np.int64)


def _sum_flops(owners: NDArray[np.int64], flops: _FLOAT, num_samples: int) -> _FLOAT:
    """Sum of each sample's items in their order, whatever the other samples are."""
    return np.bincount(owners, flops, num_samples).astype(np.float64)


def _joined(first: MediaCounts, second: MediaCounts) -> MediaCounts:
    names = ("segments", "grid_heights", "grid_widths", "tokens", "legal")
    columns = {
        name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in names
    }
    return MediaCounts(**columns)


def _check_legal(
    counts: MediaCounts,
    owners: NDArray[np.int64],
    what: str,
    *sizes: NDArray[Any],
    unit: str = "pixels (height x width)",
) -> None:
    """Raise where the rule refuses a size, with the samples, the first size and the cure."""
    if bool(counts.legal.all()):
        return
    refused = np.flatnonzero(~counts.legal)
    ids = np.unique(owners[refused])
    size = " x ".join(str(column[refused[0]]) for column in sizes)
    shown = ", ".join(map(str, ids[:10])) + (", ..." if ids.size > 10 else "")
    raise SampleError(
        f"{what} {size} {unit}, in sample {ids[0]}; samples with such media: {shown} "
        f"({ids.size} in all); use the token rule of your model, resize the media, or leave the "
        "samples out",
        sample_ids=ids.tolist(),
    )
