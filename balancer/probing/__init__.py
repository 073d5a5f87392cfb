"""Sizes of media files from their headers, without decoding them."""

from balancer.probing.headers import MediaHeader, MediaKind, media_kind, read_header
from balancer.probing.media_files import MediaFiles
from balancer.probing.probe import OnError, probe

__all__ = [
    "MediaFiles",
    "MediaHeader",
    "MediaKind",
    "OnError",
    "media_kind",
    "probe",
    "read_header",
]
