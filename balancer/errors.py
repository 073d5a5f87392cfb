"""Errors of the library; every one says what was given, what is allowed and what to do.

```text
BalancerError (a ValueError)
├── ArgumentError   an argument is outside what is allowed
├── SampleError     a sample has an impossible size or cost (carries the sample ids)
├── CapacityError   a sample or a step does not fit the limits
├── PlanError       a plan breaks one of its promises
└── StateError      a saved state does not belong to this sampler
```
"""

from collections.abc import Sequence

__all__ = [
    "ArgumentError",
    "BalancerError",
    "CapacityError",
    "PlanError",
    "SampleError",
    "StateError",
]


class BalancerError(ValueError):
    """Base of all errors raised on purpose by this library.

    Example:
        >>> issubclass(CapacityError, BalancerError) and issubclass(BalancerError, ValueError)
        True
    """


class ArgumentError(BalancerError):
    """An argument is outside what is allowed; the message starts with its name."""


class SampleError(BalancerError):
    """One or more samples have a size or cost that cannot be right.

    Attributes:
        sample_ids: Ids (row indices) of the samples at fault.

    Example:
        >>> SampleError("sample 3: text_tokens is -1", sample_ids=[3]).sample_ids
        (3,)
    """

    def __init__(self, message: str, *, sample_ids: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.sample_ids = tuple(int(sample_id) for sample_id in sample_ids)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), str(self), self.sample_ids)


class CapacityError(SampleError):
    """A sample, or a step's samples together, do not fit the limits of a microbatch."""


class PlanError(BalancerError):
    """A plan breaks conservation, a limit, or the equal number of microbatches."""


class StateError(BalancerError):
    """A state dict cannot be loaded here; the message lists every field that differs."""


def _rebuild(cls: type[SampleError], message: str, sample_ids: tuple[int, ...]) -> SampleError:
    """Unpickle an error whose constructor has keyword-only arguments."""
    return cls(message, sample_ids=sample_ids)
