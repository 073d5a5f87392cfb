"""Reads the fields of samples: of mappings, dataclasses and other objects alike."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from balancer.errors import SampleError

__all__ = ["IGNORED_LABEL", "concatenate_media", "field", "token_row"]

IGNORED_LABEL = -100
"""Label of a token without a loss, the `ignore_index` of torch's cross entropy."""


def field(sample: Any, name: str) -> Any:
    """The field of a mapping, else the attribute of an object; `None` where it has none.

    Example:
        >>> field({"input_ids": [1]}, "input_ids"), field({"input_ids": [1]}, "labels")
        ([1], None)
    """
    return sample.get(name) if isinstance(sample, Mapping) else getattr(sample, name, None)


def token_row(sample: Any, name: str, sample_id: int, *, length: int | None = None) -> Tensor:
    """A field with one entry a token, as a tensor of one dimension.

    A leading dimension of one, as processors return it, is dropped.

    Args:
        sample: The sample.
        name: The field.
        sample_id: Id for the error message.
        length: Tokens it must have; any number but zero when not given.

    Raises:
        SampleError: The field is missing, has another shape, or another length.

    Example:
        >>> token_row({"input_ids": [[4, 5]]}, "input_ids", 0)
        tensor([4, 5])
    """
    value = field(sample, name)
    if value is None:
        raise SampleError(
            f"sample {sample_id} has no {name}; give it that key or attribute, one entry a token",
            sample_ids=[sample_id],
        )
    row = _tensor(value)
    if row.ndim == 2 and row.shape[0] == 1:
        row = row[0]
    if row.ndim != 1 or not len(row):
        raise SampleError(
            f"{name} of sample {sample_id} has shape {tuple(row.shape)}; allowed: (tokens,) with "
            "at least one token",
            sample_ids=[sample_id],
        )
    if length is not None and len(row) != length:
        raise SampleError(
            f"{name} of sample {sample_id} has {len(row)} entries, its input_ids has {length}; "
            "every field of tokens needs one entry a token",
            sample_ids=[sample_id],
        )
    return row


def concatenate_media(samples: Sequence[Any], names: Sequence[str]) -> dict[str, Tensor]:
    """The named fields of all samples, each joined over its first dimension.

    A tensor's first dimension counts items: patches of flattened images, tiles, rows of a table of
    sizes. A list holds one tensor an image, `(channels, height, width)` of any size: all are
    flattened into one vector, and their heights and widths become `image_sizes` unless the samples
    bring a field of that name. A sample may lack a field; a field that all lack is left out.

    Example:
        >>> samples = [{"pixel_values": torch.zeros(6, 4), "image_grid_thw": [[1, 2, 3]]}, {}]
        >>> media = concatenate_media(samples, ["pixel_values", "image_grid_thw"])
        >>> media["pixel_values"].shape, media["image_grid_thw"]
        (torch.Size([6, 4]), tensor([[1, 2, 3]]))
        >>> images = [torch.zeros(3, 2, 5), torch.zeros(3, 4, 4)]
        >>> media = concatenate_media([{"pixel_values": images}], ["pixel_values"])
        >>> media["pixel_values"].shape, media["image_sizes"].tolist()
        (torch.Size([78]), [[2, 5], [4, 4]])
    """
    joined: dict[str, Tensor] = {}
    for name in names:
        values = [value for value in (field(sample, name) for sample in samples) if _given(value)]
        if not values:
            continue
        if _is_image_list(values[0]):
            images = [_tensor(image) for value in values for image in value]
            joined[name] = torch.cat([image.flatten() for image in images])
            joined.setdefault(
                "image_sizes", torch.tensor([tuple(image.shape[-2:]) for image in images])
            )
        else:
            joined[name] = torch.cat([_tensor(value) for value in values])
    return joined


def _given(value: Any) -> bool:
    return value is not None and not (isinstance(value, list | tuple) and not len(value))


def _is_image_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and getattr(value[0], "ndim", 0) >= 2


def _tensor(value: Any) -> Tensor:
    """Any array as a tensor; what is not one already is copied, as it may be read-only."""
    return value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
