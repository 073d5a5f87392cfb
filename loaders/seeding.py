"""Seeds of a sample's own: augmentation that depends on no worker, rank or resumed run."""

import hashlib
import random
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.utils.data import get_worker_info

__all__ = [
    "collate_seed",
    "globals_kept",
    "sample_generator",
    "sample_seed",
    "seed_globals",
    "seed_thread",
]

_OF_THREAD = threading.local()


def sample_seed(seed: int, epoch: int, sample_id: int) -> bytes:
    """20 bytes that depend on these numbers only; the same on every host.

    Example:
        >>> seed = sample_seed(0, 1, 2)
        >>> seed == sample_seed(0, 1, 2), seed == sample_seed(0, 2, 1)
        (True, False)
    """
    return _digest(b"sample", seed, epoch, sample_id)


def collate_seed(seed: int, epoch: int, first_sample_id: int) -> bytes:
    """20 bytes for what a collate function draws, by the first sample of its microbatch."""
    return _digest(b"collate", seed, epoch, first_sample_id)


def seed_globals(digest: bytes) -> None:
    """Seed the global generators of `random`, NumPy and torch (CPU) from 20 bytes.

    Example:
        >>> with globals_kept():
        ...     seed_globals(sample_seed(0, 0, 7))
        ...     first = random.random(), np.random.random(), torch.rand(1)
        ...     seed_globals(sample_seed(0, 0, 7))
        ...     first == (random.random(), np.random.random(), torch.rand(1))
        True
    """
    seed_thread(digest)
    for_random, for_torch, for_numpy = struct.unpack("<QQL", digest)
    random.seed(for_random)
    np.random.seed(for_numpy)  # noqa: NPY002 - the global generator is what users draw from
    torch.default_generator.manual_seed(for_torch)


def seed_thread(digest: bytes) -> None:
    """Seed what `sample_generator` gives in this thread."""
    _OF_THREAD.digest = digest


def sample_generator() -> np.random.Generator:
    """A generator seeded by (seed, epoch, sample) for the sample that this thread is reading.

    Global generators are shared by threads, so what they give there depends on who came first.
    Draw from this one, and augmentation is the same in threads and processes.

    Example:
        >>> seed_thread(sample_seed(0, 0, 7))
        >>> sample_generator().random() == sample_generator().random()
        True
    """
    return np.random.default_rng(list(getattr(_OF_THREAD, "digest", b"\0")))


@contextmanager
def globals_kept(*, wanted: bool = True) -> Iterator[None]:
    """Give the global generators their state back afterwards, if wanted, in a process that trains.

    In a worker process there is nothing to keep: all that draws there is seeded before it does.
    """
    if not wanted or get_worker_info() is not None:
        yield
        return
    kept = random.getstate(), np.random.get_state(), torch.default_generator.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
        torch.default_generator.set_state(kept[2])


def _digest(purpose: bytes, *numbers: int) -> bytes:
    return hashlib.blake2b(struct.pack("<3Q", *numbers), digest_size=20, person=purpose).digest()
