"""Run a benchmark: `python -m benchmarks.run experiment=step_time json=PATH`.

Without an experiment, one planner on one trace and topology: `data=`, `model=`, `cost=`,
`planner=`, `topology=` choose them, and `-m` runs every combination. With `json=PATH` the records
are written there, and beside them a Markdown table and a figure.
"""

import shlex
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from balancer.errors import BalancerError
from benchmarks.figures import draw
from benchmarks.measure import Record, write_records
from benchmarks.summary import markdown, tables

__all__ = ["main", "run"]


def run(config: DictConfig) -> list[Record]:
    """Records of the measurement that a composed configuration describes."""
    records: list[Record] = hydra.utils.instantiate(config.measure)
    return records


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(config: DictConfig) -> None:
    """Measure, print, and write what `json` asks for."""
    try:
        records = run(config)
    except hydra.errors.InstantiationException as error:
        if not isinstance(error.__cause__, BalancerError):
            raise
        sys.exit(f"benchmarks.run: {error.__cause__}")
    print(tables(records))
    if config.json is None:
        return
    path = Path(config.json)
    job = HydraConfig.get()
    sweeping = job.mode == RunMode.MULTIRUN and job.job.num > 0
    held = write_records(path, records, keep=sweeping)
    command = f"python -m benchmarks.run {shlex.join(sys.argv[1:])}"
    path.with_suffix(".md").write_text(markdown(held, command))
    draw(held, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
