"""Every choice of the benchmark configuration composes and builds what it names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hydra
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from balancer.cost import Costs
from balancer.flops.cost import FlopsCost
from balancer.samples import SampleTable
from balancer.topology import Topology
from benchmarks.planners import Balanced, Baseline
from benchmarks.traces import Trace

_CONF = Path(__file__).resolve().parents[1] / "conf"
_GROUPS = ("data", "model", "cost", "planner", "topology")
_CHOICES = [(group, path.stem) for group in _GROUPS for path in sorted((_CONF / group).iterdir())]


@pytest.fixture(autouse=True)
def _conf() -> Iterator[None]:
    with initialize_config_dir(config_dir=str(_CONF), version_base="1.3"):
        yield


def _compose(*overrides: str) -> DictConfig:
    return compose("config", list(overrides))


@pytest.mark.parametrize(("group", "choice"), _CHOICES)
def test_every_choice_builds_what_its_group_promises(group: str, choice: str) -> None:
    built: Any = hydra.utils.instantiate(_compose(f"{group}={choice}")[group])
    if group == "data":
        assert isinstance(built, Trace)
        assert built.name == choice
    elif group == "model":
        assert isinstance(built, FlopsCost)
    elif group == "cost":
        costs = built(SampleTable.from_lengths([3, 5]))
        assert isinstance(costs, Costs)
        assert costs.unit == choice
    elif group == "planner":
        assert isinstance(built, (Balanced, Baseline))
        assert built.name == choice
    else:
        assert isinstance(built, Topology)
        assert str(built) == choice


def test_all_files_of_the_configuration_are_covered() -> None:
    folders = {path.name for path in _CONF.iterdir() if path.is_dir()}
    assert folders == {*_GROUPS, "measure", "experiment"}


@pytest.mark.parametrize("path", sorted((_CONF / "experiment").iterdir()), ids=lambda p: p.stem)
def test_an_experiment_sets_its_name_and_resolves(path: Path) -> None:
    config = _compose(f"experiment={path.stem}")
    assert config.name == path.stem
    assert OmegaConf.to_container(config.measure, resolve=True)


def test_an_experiment_overrides_the_main_configuration_and_the_caller_both() -> None:
    assert _compose().barriers is None
    assert _compose("experiment=step_time").barriers == ["step", "microbatch"]
    assert _compose("experiment=step_time", "barriers=[step]").barriers == ["step"]
    assert _compose("experiment=planning_time", "data=embedded").data.name == "embedded"


def test_limits_and_barrier_can_be_set_from_outside() -> None:
    config = _compose("topology.limits.max_tokens=4096", "topology.barrier=step")
    topology = hydra.utils.instantiate(config.topology)
    assert (topology.limits.max_tokens, topology.barrier) == (4096, "step")
