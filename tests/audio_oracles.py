"""Published audio front ends of the families whose audio a token rule counts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from balancer.tokens import token_rule
from tests.token_oracles import AudioOracle, Columns, word_tokenizer

__all__ = ["AUDIO_ORACLES"]

SAMPLING_RATE = 16000


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLING_RATE)


def _sound(seconds: float) -> Any:
    return np.random.default_rng(0).normal(0, 0.1, _samples(seconds)).astype(np.float32)


def _unless_empty(columns: Columns) -> Columns | None:
    return columns if columns["tokens"] > 0 else None


def whisper() -> AudioOracle:
    from transformers import WhisperConfig, WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor()
    positions = WhisperConfig().max_source_positions

    def run(seconds: float) -> Columns | None:
        features = extractor(_sound(seconds), sampling_rate=SAMPLING_RATE)["input_features"]
        return {"tokens": features[0].shape[-1] // 2, "segments": 1}

    return AudioOracle(
        family="whisper",
        source="transformers:WhisperFeatureExtractor",
        rule=token_rule("whisper"),
        count=lambda seconds: {"tokens": positions, "patches": positions},
        run=run,
    )


def qwen2_audio() -> AudioOracle:
    from transformers import WhisperFeatureExtractor
    from transformers.models.qwen2_5_omni.processing_qwen2_5_omni import (
        _get_feat_extract_output_lengths,
    )
    from transformers.models.qwen2_audio.processing_qwen2_audio import Qwen2AudioProcessor

    tokenizer = word_tokenizer("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", pad_token="<pad>")
    extractor = WhisperFeatureExtractor(feature_size=128)
    processor = Qwen2AudioProcessor(extractor, tokenizer)

    def count(seconds: float) -> Columns | None:
        frames = len(range(0, min(_samples(seconds), extractor.n_samples), extractor.hop_length))
        return _unless_empty({"tokens": _get_feat_extract_output_lengths(frames)})

    def run(seconds: float) -> Columns | None:
        inputs = processor(text=["<|AUDIO|>"], audio=[_sound(seconds)], sampling_rate=SAMPLING_RATE)
        return _unless_empty(
            {
                "tokens": len(inputs["input_ids"][0]),
                "patches": np.shape(inputs["input_features"])[-1] // 2,
            }
        )

    return AudioOracle(
        family="qwen2-audio",
        source="transformers:Qwen2AudioProcessor",
        rule=token_rule("qwen2-audio"),
        count=count,
        run=run,
    )


def qwen_omni() -> AudioOracle:
    from transformers import WhisperFeatureExtractor
    from transformers.models.qwen2_5_omni.processing_qwen2_5_omni import (
        _get_feat_extract_output_lengths,
    )

    extractor = WhisperFeatureExtractor(feature_size=128, chunk_length=300)

    def columns_of(frames: int) -> Columns | None:
        tokens = int(_get_feat_extract_output_lengths(frames))
        return _unless_empty({"tokens": tokens, "segments": -(-frames // 200)})

    def count(seconds: float) -> Columns | None:
        samples = min(_samples(seconds), extractor.n_samples)
        return columns_of(len(range(0, samples, extractor.hop_length)))

    def run(seconds: float) -> Columns | None:
        features = extractor(
            _sound(seconds), sampling_rate=SAMPLING_RATE, return_attention_mask=True
        )
        return columns_of(int(features["attention_mask"].sum()))

    return AudioOracle(
        family="qwen2.5-omni",
        source="transformers:Qwen2_5OmniProcessor",
        rule=token_rule("qwen2.5-omni"),
        count=count,
        run=run,
    )


def gemma4() -> AudioOracle:
    from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
    from transformers.models.gemma4.processing_gemma4 import Gemma4Processor

    extractor = Gemma4AudioFeatureExtractor()
    processor = object.__new__(Gemma4Processor)
    processor.feature_extractor, processor.audio_seq_length = extractor, 750
    processor.audio_token, processor.boa_token, processor.eoa_token = "a", "<", ">"

    def columns_of(tokens: int) -> Columns | None:
        return {"tokens": tokens + 2, "patches": tokens} if tokens > 0 else None

    def count(seconds: float) -> Columns | None:
        sound = range(_samples(seconds))
        return columns_of(processor._compute_audio_num_tokens(sound, SAMPLING_RATE))

    def run(seconds: float) -> Columns | None:
        features = extractor([_sound(seconds)])
        return columns_of(processor.replace_audio_token(features, 0).count("a"))

    return AudioOracle(
        family="gemma-4",
        source="transformers:Gemma4Processor",
        rule=token_rule("gemma-4"),
        count=count,
        run=run,
    )


AUDIO_ORACLES: dict[str, Callable[[], AudioOracle]] = {
    "gemma-4": gemma4,
    "qwen2-audio": qwen2_audio,
    "qwen2.5-omni": qwen_omni,
    "whisper": whisper,
}
"""Case name to a function that builds its oracle; building imports transformers."""
