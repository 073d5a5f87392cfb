"""Facts of a microbatch in which another sample was read in the place of one that failed."""

from dataclasses import replace

from balancer.plan import Flag
from loaders.microbatch import MicrobatchFacts, SampleFailure, Substitute

__all__ = ["substituted"]


def substituted(
    facts: MicrobatchFacts, place: int, substitute: Substitute, *, error: str, filler: bool
) -> MicrobatchFacts:
    """The facts with `substitute` at `place`, flagged, and the failure listed.

    A filler stays one, and `filler` makes one of any sample: it has no loss. The step's own counts
    stay those of the plan.
    """
    without_loss = filler or facts.flags[place] == Flag.FILLER
    failure = SampleFailure(
        sample_id=facts.sample_ids[place],
        substitute_id=substitute.sample_id,
        epoch=facts.epoch,
        step=facts.step,
        error=error,
    )
    flag = int(Flag.FILLER if without_loss else Flag.REPEAT)
    target_tokens = 0 if without_loss else substitute.target_tokens
    return replace(
        facts,
        sample_ids=_with(facts.sample_ids, place, substitute.sample_id),
        flags=_with(facts.flags, place, flag),
        target_tokens=_with(facts.target_tokens, place, target_tokens),
        failures=(*facts.failures, failure),
    )


def _with(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])
