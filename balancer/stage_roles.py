"""Which stages of a pipeline are the language model's, and whether encoders have their own."""

from collections.abc import Mapping, Sequence

from balancer.errors import ArgumentError

__all__ = ["check_deferral", "language_modules", "language_stages"]


def language_stages(stages: Sequence[Mapping[str, float]]) -> range:
    """Stages from the first that holds a module of the last one.

    Example:
        >>> language_stages([{"vision": 1}, {"language": 1}, {"language": 1}])
        range(1, 3)
    """
    held = [_modules(stage) for stage in stages]
    first = next((stage for stage, names in enumerate(held) if names & held[-1]), 0)
    return range(first, len(stages))


def language_modules(stages: Sequence[Mapping[str, float]]) -> set[str]:
    """Modules of the language stages.

    Example:
        >>> language_modules([{"vision": 1}, {"language": 1}, {"language": 1}])
        {'language'}
    """
    return {name for stage in language_stages(stages) for name in _modules(stages[stage])}


def check_deferral(
    stages: Sequence[Mapping[str, float]], schedule: str, unequal_ranks: bool
) -> None:
    """Refuse deferral where encoder and language work share a stage, or the schedule would lock.

    Raises:
        ArgumentError: The schedule is interleaved, ranks differ, a stage holds both, or none holds
            encoders.
    """
    if unequal_ranks:
        raise ArgumentError(
            "deferral is True with rank_speeds or rank_limits; deferral is planned for equal ranks "
            "only: leave one of them out"
        )
    if schedule == "interleaved":
        raise ArgumentError(
            'deferral is True with schedule="interleaved", whose groups of microbatches would wait '
            'for each other for ever; use "1f1b" or "eager_1f1b", or leave deferral out'
        )
    language = language_stages(stages)
    encoders = {name for stage in stages[: language.start] for name in _modules(stage)}
    if not encoders or any(encoders & _modules(stages[stage]) for stage in language):
        raise ArgumentError(
            f"deferral is True and stages is {tuple(stages)!r}; encoders and the language model "
            "need stages of their own, encoders first: see "
            "balancer.pipeline_stages.encoder_first, or leave deferral out"
        )


def _modules(stage: Mapping[str, float]) -> set[str]:
    return {name for name, weight in stage.items() if weight}
