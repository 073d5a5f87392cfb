"""Size of one media file from its header: images with Pillow, audio and video with PyAV."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, BinaryIO, Literal

from balancer.errors import ArgumentError, BalancerError
from balancer.probing.wholeness import missing_end

__all__ = ["SUFFIXES", "MediaHeader", "MediaKind", "media_kind", "read_header", "require_reader"]

MediaKind = Literal["image", "video", "audio"]
_KINDS: dict[MediaKind, str] = {
    "image": "avif bmp gif heic heif jfif jp2 jpe jpeg jpg png ppm tif tiff webp",
    "video": "3gp avi m2ts m4v mkv mov mp4 mpeg mpg mts ogv ts webm wmv",
    "audio": "aac aif aiff flac m4a mka mp2 mp3 oga ogg opus wav weba wma",
}
SUFFIXES: Mapping[str, MediaKind] = MappingProxyType(
    {f".{suffix}": kind for kind, suffixes in _KINDS.items() for suffix in suffixes.split()}
)
"""Kind of media by the suffix of the file's name, in lower case."""

_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)  # shown with height and width exchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaHeader:
    """What the header of one file says.

    Attributes:
        kind: Image, video or audio.
        format: Name of the format, and for images of the pixels, as Pillow and FFmpeg name them:
            `"JPEG/RGB"`, `"PNG/RGBA"`, `"mp4/h264"`, `"ogg/vorbis"`.
        height: Pixels as shown; 0 for audio.
        width: Pixels as shown; 0 for audio.
        frames: Frames of a video; 0 for the others.
        fps: Frames a second of a video; `nan` for the others.
        seconds: Duration of audio and video; `nan` for images.
        encoded_bytes: Bytes of the file.
        fault: What shows that the file was cut short; empty for a whole file.
    """

    kind: MediaKind
    format: str
    height: int = 0
    width: int = 0
    frames: int = 0
    fps: float = float("nan")
    seconds: float = float("nan")
    encoded_bytes: int
    fault: str = ""


def media_kind(name: str | os.PathLike[str]) -> MediaKind | None:
    """Kind of media by the suffix of a name; `None` where it tells nothing.

    Example:
        >>> media_kind("shard/000.cover.JPG"), media_kind("notes.txt")
        ('image', None)
    """
    return SUFFIXES.get(PurePath(name).suffix.lower())


def read_header(file: BinaryIO, *, kind: MediaKind) -> MediaHeader:
    """Size of the media in an open file; nothing is decoded.

    Height and width are those shown: the EXIF orientation of an image counts, as it does for
    `PIL.ImageOps.exif_transpose`. The rotation of a video is not in what PyAV reads of a header,
    so its height and width are as stored. Where a container has no number of frames it is
    duration times frame rate.

    Args:
        file: Open file, seekable, of at least one byte; its position is changed.
        kind: What the file holds.

    Raises:
        ArgumentError: The file is empty, is not of that kind, or its header cannot be read.
        BalancerError: The library that reads this kind is not installed.

    Example:
        >>> import io
        >>> from PIL import Image
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (640, 480)).save(file, "PNG")
        >>> header = read_header(file, kind="image")
        >>> header.format, header.height, header.width
        ('PNG/RGB', 480, 640)
    """
    require_reader(kind)
    num_bytes = file.seek(0, os.SEEK_END)
    if not num_bytes:
        raise ArgumentError("file is empty; give a media file")
    file.seek(0)
    try:
        header = _image(file, num_bytes) if kind == "image" else _stream(file, num_bytes, kind)
    except ArgumentError:
        raise
    except Exception as error:  # parsers of corrupt files raise whatever they stumble over
        raise ArgumentError(f"file has no readable header ({_told(error)})") from error
    return header


def require_reader(kind: MediaKind) -> None:
    """Raise unless files of a kind can be read.

    Raises:
        BalancerError: The library is not installed; names the extra that has it.
    """
    module, extra = ("PIL", "images") if kind == "image" else ("av", "media")
    if find_spec(module) is None:
        raise BalancerError(
            f"{module} is not installed, headers of {kind} files need it; run: "
            f'pip install "evenstep[{extra}]"'
        )


def _image(file: BinaryIO, num_bytes: int) -> MediaHeader:
    from PIL import Image

    with Image.open(file) as image:
        width, height = image.size
        # The method of the PNG class decodes the image to find an eXIf chunk behind the pixels.
        orientation = Image.Image.getexif(image).get(_ORIENTATION)
        if orientation in _TURNED and image.format != "TIFF":  # Pillow turns TIFF by itself
            width, height = height, width
        format_name = f"{image.format}/{image.mode}"
        return MediaHeader(
            kind="image",
            format=format_name,
            height=height,
            width=width,
            encoded_bytes=num_bytes,
            fault=missing_end(file, num_bytes) or "",
        )


def _stream(file: BinaryIO, num_bytes: int, kind: MediaKind) -> MediaHeader:
    import av

    with av.open(file, mode="r") as container:
        streams = container.streams.video if kind == "video" else container.streams.audio
        if not streams:
            raise ArgumentError(f"file has no {kind} stream")
        stream: Any = streams[0]
        seconds = _seconds(container, stream)
        name = f"{container.format.name.split(',')[0]}/{stream.codec_context.name}"
        picture = _picture(stream, seconds) if kind == "video" else {}
    if not seconds > 0 or (kind == "video" and not picture["frames"]):
        raise ArgumentError("file has no duration in its header, and no number of frames")
    fault = missing_end(file, num_bytes) or ""
    return MediaHeader(
        kind=kind, format=name, seconds=seconds, encoded_bytes=num_bytes, fault=fault, **picture
    )


def _seconds(container: Any, stream: Any) -> float:
    if stream.duration is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is not None:
        return float(container.duration) / 1e6
    rate = getattr(stream, "average_rate", None)
    return float(stream.frames / rate) if rate and stream.frames else 0.0


def _picture(stream: Any, seconds: float) -> dict[str, Any]:
    rate: Fraction | None = stream.average_rate or stream.guessed_rate
    fps = float(rate) if rate else float("nan")
    frames = stream.frames or (round(seconds * fps) if rate else 0)
    context = stream.codec_context
    return {
        "height": int(context.height),
        "width": int(context.width),
        "frames": int(frames),
        "fps": fps,
    }


def _told(error: Exception) -> str:
    """Name and message of an error on one line, without the address of the file object."""
    message = " ".join(str(error).split()).split(" <")[0]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
