"""Cache of sizes on disk: entries that appear whole, and are checked before they are used."""

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from balancer.errors import ArgumentError, BalancerError
from balancer.samples import SampleTable
from balancer.sizing.key import identity
from balancer.sizing.tables import load_table, save_table

__all__ = ["cached_table"]

_FORMAT = 1


def cached_table(
    folder: str | os.PathLike[str],
    key: tuple[str, ...],
    compute: Callable[[], SampleTable],
) -> SampleTable:
    """The table that `compute` returns, from the cache where it was computed before.

    An entry is one Arrow file whose name holds the digest of the key and that of its own bytes.
    It is written under a temporary name and renamed, so that any number of processes may write
    at once, and a file that was torn or changed no longer has the digest in its name.

    Args:
        folder: Folder of the entries; made where it does not exist.
        key: Everything that decides the table.
        compute: Computes the table.

    Raises:
        ArgumentError: The folder cannot be written; told before anything is computed.
    """
    path = _writable(folder)
    name = identity((_FORMAT, *key))[:32]
    found = _found(path, name)
    if found is not None:
        return found
    table = compute()
    try:
        _write(table, path, name)
    except OSError as error:
        warnings.warn(f"sizes could not be cached in {path}: {error}", stacklevel=3)
    return table


def _found(folder: Path, name: str) -> SampleTable | None:
    """The first whole entry of that name; others are told of and removed."""
    for entry in sorted(folder.glob(f"sizes-{name}-*.arrow")):
        try:
            if _digest(entry) == entry.stem.split("-")[2]:
                return load_table(entry)
            fault = "its bytes are not those that were written"
        except FileNotFoundError:
            continue  # another process removed it
        except (BalancerError, OSError) as error:
            fault = str(error)
        warnings.warn(
            f"cached sizes in {entry} are damaged ({fault}); they are computed again", stacklevel=4
        )
        entry.unlink(missing_ok=True)
    return None


def _write(table: SampleTable, folder: Path, name: str) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{name}-", suffix=".tmp", dir=folder)
    os.close(handle)
    try:
        save_table(table, temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, folder / f"sizes-{name}-{_digest(temporary)}.arrow")
    finally:
        Path(temporary).unlink(missing_ok=True)


def _digest(path: str | os.PathLike[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _writable(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ArgumentError(
            f"cache is {path}, which cannot be written ({error.strerror}); name a folder of yours"
        ) from error
    return path
