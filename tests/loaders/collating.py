"""Facts of a microbatch, and samples, for the tests of collators."""

from typing import Any

from loaders.microbatch import MicrobatchFacts, SampleList


def samples_with_facts(
    samples: list[Any],
    *,
    flags: tuple[int, ...] | None = None,
    target_tokens: tuple[int, ...],
    **facts: Any,
) -> SampleList:
    """The samples as the microbatch that a batch sampler would have asked for."""
    given = {
        "epoch": 0,
        "step": 0,
        "index": 0,
        "num_microbatches": 1,
        "dp_rank": 0,
        "dp_size": 1,
        "sample_ids": tuple(range(100, 100 + len(samples))),
        "step_target_tokens": sum(target_tokens),
        "step_samples": len(samples),
        "step_target_samples": sum(count > 0 for count in target_tokens),
    }
    return SampleList(
        samples,
        MicrobatchFacts(
            flags=flags or (0,) * len(samples), target_tokens=target_tokens, **(given | facts)
        ),
    )
