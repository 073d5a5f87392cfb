"""How many GPUs the encoders and the language model should get, judged by planned steps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.checks import check_count
from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.limits import Limits
from balancer.split_times import SplitLayout, SplitTime, draw_steps, split_time
from balancer.topology import Schedule

__all__ = ["SplitLayout", "SplitRecommendation", "SplitTime", "recommend_split", "required_draws"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRecommendation:
    """The fastest split found, beside all that were planned; `str()` of it is a table.

    Attributes:
        best: The fastest; no neighbour (one stage more or less for the encoders) is faster.
        splits: Every split that was planned, by layout, then by encoder stages.
        proportional: Encoder stages of each layout by the share of the work alone.
        encoder_share: Work of the encoders over all work, of all samples together.
        stable_batch_size: For each layout the samples of a global batch from which on the
            proportional split is stable; `None` where `largest_tried` is not enough.
        largest_tried: Largest batch whose stability was tried.
        num_draws: Batches that had to agree on the split.
        global_batch_size: Samples of the steps that were planned.
        num_steps: Steps that were planned for each split.
        unit: Unit of the times.
    """

    best: SplitTime
    splits: tuple[SplitTime, ...]
    proportional: tuple[int, ...]
    encoder_share: float
    stable_batch_size: tuple[int | None, ...]
    largest_tried: int
    num_draws: int
    global_batch_size: int
    num_steps: int
    unit: str
    layouts: tuple[SplitLayout, ...] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain numbers, strings, lists and dicts."""
        return asdict(self)

    def __str__(self) -> str:
        best = self.best
        lines = [
            f"{best.encoder_gpus} GPUs for the encoders, {best.language_gpus} for the language "
            f"model ({best.layout})",
            f"encoders have {self.encoder_share:.1%} of the work; {self.num_steps} steps of "
            f"{self.global_batch_size} samples planned for each split",
            f"{'layout':<12}{'encoder':>9}{'language':>10}{'step time':>13}{'over best':>11}",
        ]
        for split in self.splits:
            mark = "  <- recommended" if split == best else ""
            over = split.step_time / best.step_time if best.step_time else 1.0
            lines.append(
                f"{split.layout!s:<12}{split.encoder_gpus:>9}{split.language_gpus:>10}"
                f"{split.step_time:>13.4g}{over:>11.3f}{mark}"
            )
        for layout, stable in zip(self.layouts, self.stable_batch_size, strict=True):
            enough = f"from {stable} samples a global batch on"
            if stable is None:
                enough = f"not with {self.largest_tried} samples a global batch; take more"
            lines.append(f"{layout}: split by work is the same in {self.num_draws} draws {enough}")
        return "\n".join(lines)


def required_draws(*, alpha: float = 0.05, error: float = 0.05) -> int:
    """Draws that must agree to say, with confidence 1 - alpha, that fewer than `error` would not.

    `ceil(ln alpha / ln (1 - error))` (Jang and Chowdhury 2026, arXiv:2605.27918, Algorithm 1).

    Raises:
        ArgumentError: A number is not between 0 and 1.

    Example:
        >>> required_draws(alpha=0.05, error=0.05)
        59
    """
    for name, value in (("alpha", alpha), ("error", error)):
        if not 0.0 < value < 1.0:
            raise ArgumentError(f"{name} is {value!r}; allowed: numbers between 0 and 1")
    return math.ceil(math.log(alpha) / math.log1p(-error))


def recommend_split(
    costs: Costs,
    *,
    num_gpus: int,
    layouts: Sequence[SplitLayout],
    language: str = "language",
    global_batch_size: int | None = None,
    num_steps: int = 2,
    limits: Limits | None = None,
    schedule: Schedule = "1f1b",
    alpha: float = 0.05,
    error: float = 0.05,
    seed: int = 0,
) -> SplitRecommendation:
    """GPUs for the encoders and for the language model, and how large global batches must be.

    Each layout is `dp_size` pipelines; the first stages hold the encoders, the others the language
    model, each evenly. The split by share of work is where the search starts: steps of drawn
    samples are planned and simulated for it and its neighbours, and it moves to the fastest until
    no neighbour is faster (in Entrain's own figures a neighbour is up to 6 % faster than the split
    by work). A global batch is large enough where the splits by work of `required_draws` batches
    drawn at random all agree; sizes are tried by doubling.

    Args:
        costs: Costs of the dataset, or of a sample of it, on one GPU.
        num_gpus: GPUs of the job.
        layouts: Candidate layouts; each divides `num_gpus` into pipelines of at least two stages.
        language: The module that is the language model; all others are encoders.
        global_batch_size: Samples of a step; the largest of the layouts' stable sizes when not
            given.
        num_steps: Steps that are planned for each split.
        limits: Hard caps of a microbatch.
        schedule: `"1f1b"` or `"eager_1f1b"`.
        alpha: Risk of calling a batch size stable that is not.
        error: Share of batches that may ask for another split than a stable size.
        seed: Seed of the draws.

    Raises:
        ArgumentError: A layout does not divide `num_gpus`, modules are missing, or a number is not
            allowed.
        CapacityError: Steps do not fit the limits.

    Example:
        >>> costs = Costs.from_values([[1, 3], [2, 6]] * 16, modules=("vision", "language"))
        >>> found = recommend_split(costs, num_gpus=4, layouts=[SplitLayout(dp_size=1)])
        >>> found.best.encoder_gpus, found.best.language_gpus, found.stable_batch_size
        (1, 3, (4,))
    """
    check_count("num_gpus", num_gpus)
    check_count("num_steps", num_steps)
    check_count("seed", seed, least=0)
    if language not in costs.modules or len(costs.modules) < 2 or not len(costs):
        raise ArgumentError(
            f"language is {language!r}; costs have {len(costs)} samples and the modules "
            f"{', '.join(map(repr, costs.modules))}: a split needs samples, {language!r} and an "
            "encoder among them"
        )
    if not layouts:
        raise ArgumentError("layouts is empty; give at least one SplitLayout")
    stages = tuple(layout.num_stages(num_gpus) for layout in layouts)
    num_draws = required_draws(alpha=alpha, error=error)
    works = _works(costs, language)
    share = float(works[:, 0].sum() / max(works.sum(), 1e-300))
    rng = np.random.default_rng(seed)
    least = [layout.dp_size * layout.num_microbatches for layout in layouts]
    stable = tuple(
        _stable_size(works, count, first, num_draws, rng)
        for count, first in zip(stages, least, strict=True)
    )
    size = global_batch_size
    if size is None:
        size = max(*least, *(each or len(costs) for each in stable))
    check_count("global_batch_size", size, least=max(least))
    steps = draw_steps(costs, size, num_steps, rng)
    splits: list[SplitTime] = []
    proportional = tuple(_proportional(share, count) for count in stages)
    for layout, count, start in zip(layouts, stages, proportional, strict=True):
        planned = partial(
            split_time, steps, layout, num_stages=count, language=language,
            limits=limits or Limits(), schedule=schedule,
        )  # fmt: skip
        splits += _climb(planned, start, count)
    return SplitRecommendation(
        best=min(splits, key=lambda split: split.step_time),
        splits=tuple(splits),
        proportional=proportional,
        encoder_share=share,
        stable_batch_size=stable,
        largest_tried=len(costs),
        num_draws=num_draws,
        global_batch_size=int(size),
        num_steps=num_steps,
        unit=costs.unit,
        layouts=tuple(layouts),
    )


def _climb(planned: Callable[[int], SplitTime], start: int, num_stages: int) -> list[SplitTime]:
    """Splits planned on the way from `start` to one that no neighbour beats, by encoder stages."""
    times = {start: planned(start)}
    at, before = start, 0
    while at != before:
        before = at
        near = [each for each in (at, at - 1, at + 1) if 0 < each < num_stages]
        for encoder_stages in near:
            if encoder_stages not in times:
                times[encoder_stages] = planned(encoder_stages)
        at = min(near, key=lambda each: times[each].step_time)
    return [times[encoder_stages] for encoder_stages in sorted(times)]


def _works(costs: Costs, language: str) -> NDArray[np.float64]:
    """Work of each sample in the encoders and in the language model."""
    column = costs.modules.index(language)
    spoken = costs.values[:, column]
    return np.stack([costs.values.sum(axis=1) - spoken, spoken], axis=1)


def _proportional(share: float, num_stages: int) -> int:
    """Stages by share of the work, rounded half up, at least one for either."""
    return min(max(math.floor(share * num_stages + 0.5), 1), num_stages - 1)


def _stable_size(
    works: NDArray[np.float64], num_stages: int, first: int, draws: int, rng: np.random.Generator
) -> int | None:
    """Least size, of `first` and its doublings, at which all draws have the split of the first."""
    size = first
    while size <= len(works):
        splits = set[int]()
        for _ in range(draws + 1):
            drawn = works[rng.integers(len(works), size=size)].sum(axis=0)
            splits.add(_proportional(float(drawn[0] / max(drawn.sum(), 1e-300)), num_stages))
        if len(splits) == 1:
            return size
        size *= 2
    return None
