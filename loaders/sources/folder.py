"""FolderDataset: media files of a folder by number, with the texts beside them."""

import hashlib
import json
import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from balancer.errors import ArgumentError, SampleError
from balancer.probing import media_kind, probe
from balancer.probing.media_files import STRINGS
from balancer.samples import SampleTable

__all__ = ["FolderDataset"]

_BESIDE = (".txt", ".json")


class FolderDataset(Dataset[Any]):
    """Each media file below a folder is a sample, with the `.txt` and `.json` of the same stem.

    In sorted order of their names. A sample is a dict of bytes by extension, with `__id__` (its
    number), `__key__` (name below the folder without its suffix) and `__url__` (the media file), as
    `TarDataset` gives it. A pickle holds the folder's name only; the process that gets it lists the
    files anew and refuses other ones.

    Args:
        folder: The folder.
        transform: Makes a sample of the dict, for example `loaders.sources.decode_image`.
        count_tokens: Tokens of a text, for `sizes`.

    Attributes:
        left_out: Files that belong to no media file, in sorted order.

    Raises:
        ArgumentError: The folder has no media files, or two with the same stem.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.jpg").write_bytes(b"pixels")
        ...     _ = Path(folder, "a.txt").write_bytes(b"a cat")
        ...     FolderDataset(folder)[0]["txt"]
        b'a cat'
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        self.folder = os.fspath(folder)
        self.transform = transform
        self.count_tokens = count_tokens
        self._list()

    def _list(self) -> None:
        self._sizes: SampleTable | None = None
        root = Path(self.folder)
        names = sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
        media = [name for name in names if media_kind(name)]
        if not media:
            raise ArgumentError(f"folder is {self.folder}, which has no media files below it")
        stems: dict[str, str] = {}
        for name in media:
            stem = os.path.splitext(name)[0]
            if stem in stems:
                raise ArgumentError(
                    f"folder {self.folder} has {stems[stem]} and {name} with the same stem; rename "
                    "one"
                )
            stems[stem] = name
        beside = {
            name for name in names if name.endswith(_BESIDE) and os.path.splitext(name)[0] in stems
        }
        self.left_out = tuple(sorted(set(names) - set(media) - beside))
        self._names = np.array(media, STRINGS)
        self._beside = {
            suffix: np.array([f"{os.path.splitext(name)[0]}{suffix}" in beside for name in media])
            for suffix in _BESIDE
        }
        self._digest = hashlib.sha256("\0".join([*media, *sorted(beside)]).encode()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        kept = ("folder", "transform", "count_tokens", "_digest")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        digest = state["_digest"]
        vars(self).update(state)
        self._list()
        if self._digest != digest:
            raise ArgumentError(
                f"folder {self.folder} has other files than where the dataset was made; files must "
                "not come or go while it is read"
            )

    @property
    def sizes(self) -> SampleTable:
        """Sizes of all samples, from headers when first asked for.

        Text tokens are those that a `.json` beside the file names as `text_tokens`, else those of
        the `.txt`; target tokens are its `target_tokens`, where every sample has it.

        Raises:
            ArgumentError: There are texts and no `count_tokens`.
            SampleError: Files are corrupt; names all of them.
        """
        if self._sizes is None:
            paths = [os.path.join(self.folder, str(name)) for name in self._names]
            tokens = [self._tokens(index) for index in range(len(self))]
            targets = [target for _, target in tokens if target is not None]
            self._sizes = probe(paths, progress=False).to_table(
                text_tokens=[text for text, _ in tokens],
                target_tokens=targets if len(targets) == len(self) else None,
            )
        return self._sizes

    def _tokens(self, index: int) -> tuple[int, int | None]:
        """Text and target tokens of a sample."""
        record = self._record(index)
        text, target = record.get("text_tokens"), record.get("target_tokens")
        if text is None:
            text = 0
            if self._beside[".txt"][index]:
                if self.count_tokens is None:
                    raise ArgumentError(
                        f"count_tokens is not given, and {self._path(index, '.txt')} has a text "
                        "without text_tokens in a .json; give count_tokens"
                    )
                text = self.count_tokens(self._path(index, ".txt").read_text("utf-8"))
        return text, target

    def _record(self, index: int) -> dict[str, Any]:
        if not self._beside[".json"][index]:
            return {}
        path = self._path(index, ".json")
        try:
            record = json.loads(path.read_bytes())
        except ValueError as error:
            raise SampleError(
                f"sample {index}: {path} is no JSON ({error})", sample_ids=[index]
            ) from error
        return record if isinstance(record, dict) else {}

    def _path(self, index: int, suffix: str) -> Path:
        return Path(self.folder, os.path.splitext(str(self._names[index]))[0] + suffix)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> Any:
        sample = self.read(index)
        return sample if self.transform is None else self.transform(sample)

    def read(self, index: int) -> dict[str, Any]:
        """Bytes of the media file and of those beside it by extension, without `transform`.

        Raises:
            IndexError: The index is outside the data.
            SampleError: A file cannot be read.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"index is {index}; allowed: 0 to {len(self) - 1}")
        key, suffix = os.path.splitext(str(self._names[index]))
        media = os.path.join(self.folder, str(self._names[index]))
        paths = {suffix[1:].lower(): media}
        for each in _BESIDE:
            if self._beside[each][index]:
                paths[each[1:]] = str(self._path(index, each))
        sample: dict[str, Any] = {"__id__": int(index), "__key__": key, "__url__": media}
        for extension, path in paths.items():
            sample[extension] = _bytes_of(path, int(index))
        return sample


def _bytes_of(path: str, sample_id: int) -> bytes:
    """The whole file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SampleError(
            f"sample {sample_id}: {path} cannot be read ({error.strerror})", sample_ids=[sample_id]
        ) from error
