"""SampleSize: the size of one sample, and how sizes are read out of a record of content."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from balancer.errors import ArgumentError

__all__ = ["SampleSize", "content_size", "size_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSize:
    """Size of one sample; a mapping with the same keys will do wherever one is expected.

    Attributes:
        text_tokens: Text tokens.
        target_tokens: Supervised tokens; all text tokens when `None`.
        image_heights: Pixels of each image.
        image_widths: Pixels of each image.
        video_frames: Frames of each video, in the file.
        video_fps: Frames a second of each video; not known when empty.
        video_heights: Pixels of each video.
        video_widths: Pixels of each video.
        audio_seconds: Seconds of each clip.
        encoded_bytes: Bytes to read; 0 where not known.

    Example:
        >>> SampleSize(text_tokens=12, image_heights=[480], image_widths=[640]).image_heights
        [480]
    """

    text_tokens: int
    target_tokens: int | None = None
    image_heights: Sequence[int] = ()
    image_widths: Sequence[int] = ()
    video_frames: Sequence[int] = ()
    video_fps: Sequence[float] = ()
    video_heights: Sequence[int] = ()
    video_widths: Sequence[int] = ()
    audio_seconds: Sequence[float] = ()
    encoded_bytes: int = 0


_NAMES = tuple(field.name for field in fields(SampleSize))


def size_of(given: Any) -> SampleSize:
    """The `SampleSize` that a function of the user returned.

    Raises:
        ArgumentError: It is neither a `SampleSize` nor a mapping with its keys.

    Example:
        >>> size_of({"text_tokens": 3}).text_tokens
        3
    """
    if isinstance(given, SampleSize):
        return given
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"size_fn returned {type(given).__name__}; allowed: a SampleSize, or a mapping with "
            f"text_tokens and any of {', '.join(_NAMES[1:])}"
        )
    unknown = [str(name) for name in given if name not in _NAMES]
    if unknown or "text_tokens" not in given:
        what = f"has {', '.join(unknown)}" if unknown else "has no text_tokens"
        raise ArgumentError(
            f"size_fn returned a mapping that {what}; its keys: {', '.join(_NAMES)}"
        )
    return SampleSize(**given)


def content_size(
    record: Mapping[str, Any],
    *,
    count_tokens: Callable[[str], int] | None = None,
    measure: Callable[[str, str], Mapping[str, float]] | None = None,
) -> SampleSize:
    """Size of a record whose `content`, or whose `messages`, list texts and media in order.

    An item is `{"type": "text", "text": …}`, or of type `image` (`height`, `width`), `video`
    (`frames`, `fps`, `height`, `width`) or `audio` (`seconds`), with `bytes` where known. A
    message is `{"role": …, "content": a text or a list of items}`; texts of the role `assistant`
    are supervised. `text_tokens` and `target_tokens` of the record go before counting.

    Args:
        record: The record.
        count_tokens: Tokens of a text; only needed where the record has no `text_tokens`.
        measure: Sizes of a medium that has none written down, from its kind and its file, which
            is under the name of its type (`{"type": "image", "image": "a.jpg"}`).

    Raises:
        ArgumentError: A size is missing.

    Example:
        >>> content_size({"text_tokens": 13, "content": [
        ...     {"type": "image", "width": 640, "height": 427, "bytes": 118717},
        ...     {"type": "text", "text": "A kitchen."}]}).image_widths
        [640]
    """
    sizes: dict[str, list[Any]] = {name: [] for names in _MEDIA.values() for name in names.values()}
    encoded = 0
    texts: list[tuple[str, bool]] = []
    for item, supervised in _items(record):
        kind = item.get("type")
        if kind == "text":
            texts.append((str(item.get("text", "")), supervised))
        elif kind in _MEDIA:
            known = _medium(kind, item, measure)
            for key, name in _MEDIA[kind].items():
                sizes[name].append(known[key])
            encoded += int(known.get("bytes") or 0)
        else:
            raise ArgumentError(
                f"content has an item of type {kind!r}; allowed: text, {', '.join(_MEDIA)}"
            )
    text_tokens, target_tokens = _tokens(record, texts, count_tokens)
    return SampleSize(
        text_tokens=text_tokens, target_tokens=target_tokens, encoded_bytes=encoded, **sizes
    )


_MEDIA = {
    "image": {"height": "image_heights", "width": "image_widths"},
    "video": {
        "frames": "video_frames",
        "fps": "video_fps",
        "height": "video_heights",
        "width": "video_widths",
    },
    "audio": {"seconds": "audio_seconds"},
}


def _items(record: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Items of the record in order, and whether each is supervised."""
    if "content" in record:
        for item in record["content"]:
            yield item, True
        return
    if "messages" not in record:
        raise ArgumentError(
            "record has neither content nor messages; give a size_fn for records of another kind"
        )
    for message in record["messages"]:
        content, supervised = message["content"], message.get("role") == "assistant"
        for item in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield item, supervised


def _medium(
    kind: str,
    item: Mapping[str, Any],
    measure: Callable[[str, str], Mapping[str, float]] | None,
) -> Mapping[str, Any]:
    needed = [key for key in _MEDIA[kind] if key != "fps"]
    known = {key: item[key] for key in (*_MEDIA[kind], "bytes") if item.get(key) is not None}
    if any(key not in known for key in needed):
        if measure is None or not isinstance(item.get(kind), str):
            missing = next(key for key in needed if key not in known)
            raise ArgumentError(
                f"content has an item of type {kind} without {missing}; write it down, or name "
                "the file and the folder that it is in (media_folder)"
            )
        known = {**measure(kind, item[kind]), **known}
    return {"fps": float("nan"), **known}


def _tokens(
    record: Mapping[str, Any],
    texts: list[tuple[str, bool]],
    count_tokens: Callable[[str], int] | None,
) -> tuple[int, int | None]:
    text_tokens, target_tokens = record.get("text_tokens"), record.get("target_tokens")
    if text_tokens is not None:
        return text_tokens, target_tokens
    if count_tokens is None:
        raise ArgumentError("record has no text_tokens; write them down, or give count_tokens")
    counts = [(count_tokens(text), supervised) for text, supervised in texts]
    if target_tokens is None:
        target_tokens = sum(count for count, supervised in counts if supervised)
    return sum(count for count, _ in counts), target_tokens
