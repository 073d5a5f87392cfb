"""Checks the settings a token rule is built with."""

from balancer.errors import ArgumentError

__all__ = ["require_multiple", "require_positive"]


def require_positive(rule: object, *names: str) -> None:
    """Refuse settings that are not positive.

    Raises:
        ArgumentError: One of the named settings is zero, negative or not a number.
    """
    for setting in names:
        value = getattr(rule, setting)
        if not value > 0:
            raise ArgumentError(f"{setting} is {value}; it must be positive")


def require_multiple(rule: object, size: str, unit: str) -> None:
    """Refuse a size that is not a multiple of its unit.

    Raises:
        ArgumentError: The setting `size` is not a multiple of the setting `unit`.
    """
    total, part = getattr(rule, size), getattr(rule, unit)
    if total % part:
        raise ArgumentError(f"{size} is {total}; it must be a multiple of {unit}, which is {part}")
