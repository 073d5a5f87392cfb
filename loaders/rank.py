"""Which data-parallel rank this process is, and of how many."""

import math
import os
from collections.abc import Mapping

import torch.distributed
from torch.distributed.device_mesh import DeviceMesh

from balancer.errors import ArgumentError
from balancer.topology import check_count

__all__ = ["discover_rank"]


def discover_rank(
    dp_rank: int | None = None, dp_size: int | None = None, mesh: DeviceMesh | None = None
) -> tuple[int, int]:
    """Data-parallel rank and size, from the first of these sources that says anything.

    1. `dp_rank` and `dp_size`, if given.
    2. `mesh`: its only dimension, whatever its name; else all dimensions whose names begin with
       `dp`, the last one fastest (so replicate x shard meshes need no flattening).
    3. `torch.distributed`, if it is initialised. Give `mesh` or `dp_rank` where not every process
       is a data-parallel rank of its own: peers of a tensor, context or pipeline group must read
       the same microbatches.
    4. The environment variables `RANK` and `WORLD_SIZE`.
    5. One rank: `(0, 1)`.

    Raises:
        ArgumentError: Only one of a pair is given, the rank is outside the world, or the mesh has
            no data-parallel dimension or does not hold this process.

    Example:
        >>> discover_rank(dp_rank=3, dp_size=8)
        (3, 8)
        >>> discover_rank(dp_rank=8, dp_size=8)
        Traceback (most recent call last):
        balancer.errors.ArgumentError: dp_rank is 8, dp_size is 8; allowed: dp_rank from 0 to 7
    """
    if dp_rank is not None or dp_size is not None:
        if mesh is not None:
            raise ArgumentError("dp_rank and mesh are both given; give one of them")
        return _checked("dp_rank", dp_rank, "dp_size", dp_size)
    if mesh is not None:
        return _from_mesh(mesh)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return _from_environment(os.environ)


def _from_mesh(mesh: DeviceMesh) -> tuple[int, int]:
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise ArgumentError("mesh does not hold this process; give the mesh of its own job")
    names = mesh.mesh_dim_names or ()
    dimensions = [index for index, name in enumerate(names) if name.startswith("dp")]
    if mesh.ndim == 1:
        dimensions = [0]
    if not dimensions:
        raise ArgumentError(
            f"mesh has dimensions {names or mesh.ndim} and none is named dp...; give the "
            "data-parallel part of it, for example mesh['data']"
        )
    rank = 0
    for index in dimensions:
        rank = rank * mesh.size(index) + int(coordinate[index])
    return rank, math.prod(mesh.size(index) for index in dimensions)


def _from_environment(environment: Mapping[str, str]) -> tuple[int, int]:
    rank, size = environment.get("RANK"), environment.get("WORLD_SIZE")
    if rank is None and size is None:
        return 0, 1
    return _checked("RANK", _number("RANK", rank), "WORLD_SIZE", _number("WORLD_SIZE", size))


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(
            f"environment variable {name} is {text!r}; allowed: a whole number; or give dp_rank "
            "and dp_size"
        ) from None


def _checked(rank_name: str, rank: int | None, size_name: str, size: int | None) -> tuple[int, int]:
    if rank is None or size is None:
        raise ArgumentError(f"{rank_name} is {rank}, {size_name} is {size}; give both, or neither")
    check_count(size_name, size)
    check_count(rank_name, rank, least=0)
    if rank >= size:
        raise ArgumentError(
            f"{rank_name} is {rank}, {size_name} is {size}; allowed: {rank_name} from 0 to "
            f"{size - 1}"
        )
    return int(rank), int(size)
