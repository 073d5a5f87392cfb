"""Plans as `.npz` files, without pickle: a header in JSON and the arrays."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from typing import Any
from zipfile import BadZipFile

import numpy as np

from balancer.bounds import Certificate
from balancer.errors import PlanError
from balancer.topology import Limits, Topology

__all__ = ["read_plan", "write_plan"]

_FORMAT = 1


def write_plan(
    path: str | PathLike[str],
    topology: Topology,
    certificates: Sequence[Certificate],
    arrays: Mapping[str, Any],
    numbers: Mapping[str, Any],
) -> None:
    """Write what `read_plan` reads back; `numbers` go into the header as they are."""
    header = {
        "format": _FORMAT,
        "topology": asdict(topology),
        "certificates": [asdict(certificate) for certificate in certificates],
        **numbers,
    }
    with open(path, "wb") as file:
        np.savez_compressed(file, header=np.array(json.dumps(header)), **arrays)


def read_plan(
    path: str | PathLike[str], names: Sequence[str], optional: str
) -> tuple[dict[str, Any], str]:
    """Fields of a plan by name, and the fingerprint that was written with them.

    Raises:
        PlanError: The file is not a plan, or is of another format.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            held = (*names, optional) if optional in file else names
            plan: dict[str, Any] = {name: file[name] for name in held}
    except (KeyError, ValueError, EOFError, BadZipFile) as error:
        raise PlanError(f"{path} is not a saved plan ({error})") from error
    if header["format"] != _FORMAT:
        raise PlanError(
            f"{path} has format {header['format']}; this version reads {_FORMAT}: plan again"
        )
    topology = header["topology"] | {"limits": Limits(**header["topology"]["limits"])}
    topology["rank_limits"] = [Limits(**own) for own in topology.get("rank_limits", ())]
    plan["topology"] = Topology(**topology)
    plan["certificates"] = tuple(Certificate(**entry) for entry in header["certificates"])
    plan |= {name: header[name] for name in ("epoch", "first_step")}
    return plan, header["fingerprint"]
