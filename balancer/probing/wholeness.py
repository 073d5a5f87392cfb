"""Whether a file reaches the end that its own format announces."""

import struct
from collections.abc import Callable
from typing import BinaryIO

__all__ = ["missing_end"]

_TAIL = 4096
_UNKNOWN_SIZES = (0, 0xFFFFFFFF)  # what writers of streams leave in a size field
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


def missing_end(file: BinaryIO, num_bytes: int) -> str | None:
    r"""What shows that the file was cut short, or `None` where nothing does.

    Reads the first bytes and the last ones; the whole file only where the last ones are not what
    a whole file ends with. Knows JPEG, PNG, RIFF (WebP, WAV, AVI), ISO media (MP4, MOV, M4A,
    AVIF, HEIF), Matroska (WebM) and Ogg; a file of another format passes.

    Args:
        file: Open file, seekable; its position is changed.
        num_bytes: Length of the file.

    Example:
        >>> import io
        >>> missing_end(io.BytesIO(b"RIFF\x10\0\0\0WEBP"), 12)
        'the header announces 24 bytes, the file has 12'
    """
    file.seek(0)
    head = file.read(16)
    for matches, check in _FORMATS:
        if matches(head):
            return check(file, num_bytes)
    return None


def _jpeg(file: BinaryIO, num_bytes: int) -> str | None:
    # FF D9 cannot stand inside the coded data: an FF there is followed by 00 or a restart marker.
    # A thumbnail has one of its own, so only what follows the start of the scan counts.
    scan = _start_of_scan(file, num_bytes)
    if scan is None:
        return "the file ends within the JPEG header"
    return None if _in_tail(file, b"\xff\xd9", scan, num_bytes) else "no end-of-image marker"


def _start_of_scan(file: BinaryIO, num_bytes: int) -> int | None:
    """Position after the header of the first scan; `None` where the segments run past the end."""
    at = 2
    while at + 4 <= num_bytes:
        file.seek(at)
        fill, marker, length = struct.unpack(">BBH", file.read(4))
        if fill != 0xFF or marker == 0xFF:  # padding between segments
            at += 1
            continue
        at += 2 + length
        if marker == 0xDA:
            return at if at < num_bytes else None
    return None


def _png(file: BinaryIO, num_bytes: int) -> str | None:
    return None if _in_tail(file, b"IEND\xaeB`\x82", 8, num_bytes) else "no IEND chunk"


def _riff(file: BinaryIO, num_bytes: int) -> str | None:
    file.seek(4)
    (size,) = struct.unpack("<I", file.read(4))
    return None if size in _UNKNOWN_SIZES else _announced(size + 8, num_bytes)


def _iso_media(file: BinaryIO, num_bytes: int) -> str | None:
    """Walk the boxes at the top level: each says where the next one begins."""
    at = 0
    while at + 8 <= num_bytes:
        file.seek(at)
        header = file.read(16)
        size = int.from_bytes(header[:4], "big")
        if size == 0:  # the last box reaches to the end of the file
            return None
        if size == 1 and len(header) == 16:
            size = int.from_bytes(header[8:], "big")
        if size < 8:
            return None  # not a box: bytes that some program appended
        at += size
    return _announced(at, num_bytes)


def _matroska(file: BinaryIO, num_bytes: int) -> str | None:
    file.seek(4)
    header_size, at = _ebml_size(file, 4)
    if header_size is None:
        return None
    at += header_size
    file.seek(at)
    if file.read(4) != _SEGMENT:
        return None
    size, at = _ebml_size(file, at + 4)
    return None if size is None else _announced(at + size, num_bytes)


def _ebml_size(file: BinaryIO, at: int) -> tuple[int | None, int]:
    """Value of a variable-length size (`None` where unknown), and the position after it."""
    first = file.read(1)
    if not first or not first[0]:
        return None, at
    length = 9 - first[0].bit_length()
    value = int.from_bytes(
        bytes([first[0] & ((1 << (8 - length)) - 1)]) + file.read(length - 1), "big"
    )
    return (None if value == (1 << 7 * length) - 1 else value), at + length


def _ogg(file: BinaryIO, num_bytes: int) -> str | None:
    """The last page must have all the bytes that its segment table announces."""
    start = max(0, num_bytes - 65_307)  # no page is longer
    file.seek(start)
    tail = file.read()
    page = tail.rfind(b"OggS")
    if page < 0:
        return "no Ogg page at the end"
    num_segments = tail[page + 26] if page + 26 < len(tail) else 255
    table = tail[page + 27 : page + 27 + num_segments]
    end = start + page + 27 + num_segments + sum(table)
    return _announced(end, num_bytes)


def _announced(end: int, num_bytes: int) -> str | None:
    if end <= num_bytes:
        return None
    return f"the header announces {end} bytes, the file has {num_bytes}"


def _in_tail(file: BinaryIO, mark: bytes, least: int, num_bytes: int) -> bool:
    """Whether `mark` stands after `least`; bytes that follow it do not matter."""
    for start in (max(least, num_bytes - _TAIL), least):
        file.seek(start)
        if mark in file.read():
            return True
    return False


_FORMATS: tuple[tuple[Callable[[bytes], bool], Callable[[BinaryIO, int], str | None]], ...] = (
    (lambda head: head.startswith(b"\xff\xd8\xff"), _jpeg),
    (lambda head: head.startswith(b"\x89PNG"), _png),
    (lambda head: head.startswith(b"RIFF"), _riff),
    (lambda head: head[4:8] == b"ftyp", _iso_media),
    (lambda head: head.startswith(_EBML), _matroska),
    (lambda head: head.startswith(b"OggS"), _ogg),
)
