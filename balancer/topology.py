"""Topology: how many ranks and microbatches there are, where ranks wait, and what fits."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from balancer.errors import ArgumentError

__all__ = ["Barrier", "Layout", "Limits", "Modules", "Topology", "check_choice", "check_count"]

Layout = Literal["packed", "padded"]
Barrier = Literal["step", "microbatch"]
Modules = Literal["in_turn", "summed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Most that one microbatch may hold; `None` means no limit.

    Attributes:
        max_tokens: Language-model tokens.
        max_patches: Encoder patches.
        max_images: Images.
        max_samples: Samples.
        layout: How a microbatch lies in memory, and so what `max_tokens` is checked on:
            `"packed"` the sum of its tokens, `"padded"` its samples times its longest.

    Raises:
        ArgumentError: A limit is not a positive whole number, or the layout is unknown.

    Example:
        >>> Limits(max_tokens=8192).max_images is None
        True
    """

    max_tokens: int | None = None
    max_patches: int | None = None
    max_images: int | None = None
    max_samples: int | None = None
    layout: Layout = "packed"

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, get_args(Layout))
        for name in _LIMIT_NAMES:
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))

    @property
    def given(self) -> dict[str, int]:
        """The limits that are set, by the name of the amount: `tokens`, `patches`, ..."""
        values = {name.removeprefix("max_"): getattr(self, name) for name in _LIMIT_NAMES}
        return {name: value for name, value in values.items() if value is not None}


_LIMIT_NAMES = ("max_tokens", "max_patches", "max_images", "max_samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Where a step's samples go and where ranks wait for each other.

    Attributes:
        dp_size: Data-parallel ranks.
        num_microbatches: Microbatches of each rank in a step.
        max_microbatches: Most microbatches a step may take when its samples do not fit
            `num_microbatches` under the limits; every rank then takes as many. `None`: as many as
            are needed; equal to `num_microbatches`: never more, and an error where they do not fit.
        barrier: Where ranks wait: `"step"` once a step (DDP with `no_sync`), `"microbatch"` in
            every microbatch (FSDP, tensor or expert parallelism).
        modules: Under the microbatch barrier, `"in_turn"` if ranks wait after each module of a
            microbatch (each is sharded), `"summed"` if they wait once for the microbatch.
        limits: Hard caps of a microbatch.

    Raises:
        ArgumentError: A number is not positive, or a choice is unknown.

    Example:
        >>> str(Topology(dp_size=8, num_microbatches=4))
        'dp8_m4'
    """

    dp_size: int
    num_microbatches: int = 1
    max_microbatches: int | None = None
    barrier: Barrier = "microbatch"
    modules: Modules = "in_turn"
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_count("dp_size", self.dp_size)
        check_count("num_microbatches", self.num_microbatches)
        check_choice("barrier", self.barrier, get_args(Barrier))
        check_choice("modules", self.modules, get_args(Modules))
        if self.max_microbatches is not None:
            check_count("max_microbatches", self.max_microbatches)
            if self.max_microbatches < self.num_microbatches:
                raise ArgumentError(
                    f"max_microbatches is {self.max_microbatches}, less than num_microbatches="
                    f"{self.num_microbatches}; raise it, or leave it out for no maximum"
                )
        if not isinstance(self.limits, Limits):
            raise ArgumentError(f"limits is {self.limits!r}; allowed: a Limits object")

    def __str__(self) -> str:
        return f"dp{self.dp_size}_m{self.num_microbatches}"


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Refuse a value that is not a whole number of at least `least`.

    Raises:
        ArgumentError: Naming the argument, the value and what is allowed.
    """
    integral = hasattr(value, "__index__") and not isinstance(value, bool)
    if not integral or value < least:  # type: ignore[operator]
        raise ArgumentError(f"{name} is {value!r}; allowed: whole numbers >= {least}")


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse a value that is not among the allowed ones.

    Raises:
        ArgumentError: Naming the argument, the value and the choices.
    """
    if value not in allowed:
        raise ArgumentError(f"{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}")
