"""Checks of single arguments: each names the argument, what was given and what is allowed."""

import math

from balancer.errors import ArgumentError

__all__ = ["check_choice", "check_count", "check_number"]


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


def check_number(name: str, value: object, *, most: float) -> None:
    """Refuse a value that is not a finite number from 0 to `most`.

    Raises:
        ArgumentError: Naming the argument, the value and what is allowed.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= most or value == math.inf:  # type: ignore[operator]
        above = "" if math.isinf(most) else f" and <= {most:g}"
        raise ArgumentError(f"{name} is {value!r}; allowed: finite numbers >= 0{above}")
