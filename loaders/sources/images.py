"""decode_image: the image of a sample that was read as bytes."""

import io
from collections.abc import Mapping
from typing import Any

from balancer.errors import SampleError
from balancer.probing import media_kind

__all__ = ["decode_image"]


def decode_image(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The sample with its first image decoded, as an RGB Pillow image under the key `"image"`.

    Turned as its EXIF orientation says, so height and width are those of
    `balancer.probing.read_header`. The bytes are left out of what is returned.

    Raises:
        SampleError: There is no image, or it is corrupt; names the sample's id, key and file.

    Example:
        >>> from PIL import Image
        >>> file = io.BytesIO()
        >>> Image.new("L", (3, 2)).save(file, "PNG")
        >>> sample = {"__id__": 0, "__key__": "a", "__url__": "a.tar", "png": file.getvalue()}
        >>> decode_image(sample)["image"].size
        (3, 2)
    """
    from PIL import Image, ImageOps

    name = next((key for key in sample if media_kind(f"_.{key}") == "image"), None)
    if name is None:
        raise _fault(sample, f"has no image; its fields are {', '.join(sample)}")
    try:
        with Image.open(io.BytesIO(sample[name])) as image:
            decoded = ImageOps.exif_transpose(image).convert("RGB")
    except Exception as error:  # parsers of corrupt files raise whatever they stumble over
        reason = str(error).split(" <")[0]
        raise _fault(
            sample, f"has a corrupt image, field {name!r} ({type(error).__name__}: {reason})"
        ) from error
    return {key: value for key, value in sample.items() if key != name} | {"image": decoded}


def _fault(sample: Mapping[str, Any], what: str) -> SampleError:
    sample_id = sample.get("__id__")
    return SampleError(
        f"sample {sample_id} ({sample.get('__key__')} of {sample.get('__url__')}) {what}",
        sample_ids=[] if sample_id is None else [sample_id],
    )
