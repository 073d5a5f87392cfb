"""Options of the command line, and the objects they stand for."""

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import get_args

from balancer.cli.limit_options import add_limits, limit_options
from balancer.cost import CostFunction, Costs, evaluate_costs
from balancer.effort import Effort, checked_effort
from balancer.errors import ArgumentError
from balancer.flops.cost import FlopsCost
from balancer.flops.presets import PRESETS, preset
from balancer.pipeline_stages import encoder_first
from balancer.plots import require_matplotlib
from balancer.ranks import Speeds
from balancer.samples import SampleTable
from balancer.sizing.tables import SizeColumns, embedded_table, table_from_parquet
from balancer.topology import Barrier, Modules, Schedule, Topology

__all__ = [
    "COLUMN_FLAGS",
    "add_data",
    "add_epoch",
    "add_topology",
    "check_outputs",
    "cost_model",
    "priced",
    "sizes",
    "topology",
]

COLUMN_FLAGS = {
    field.name: f"--{field.name.replace('_', '-')}-column" for field in fields(SizeColumns)
}
"""The option that names the column of each size."""


def priced(arguments: argparse.Namespace) -> Costs:
    """Costs by `--model` of the sizes that DATA and the column options name.

    Raises:
        BalancerError: As `sizes` and `cost_model`.
    """
    return evaluate_costs(cost_model(arguments.model), sizes(arguments))


def sizes(arguments: argparse.Namespace) -> SampleTable:
    """The table of the sizes that DATA and the column options name.

    Raises:
        ArgumentError: A file is not there or not Parquet, or a column is missing.
        SampleError: A size is impossible.
    """
    if arguments.data == ["embedded"]:
        return embedded_table()
    for path in arguments.data:
        if not Path(path).is_file():
            raise ArgumentError(
                f"DATA is {path}, which is not a file; name Parquet files, or `embedded`"
            )
    given = {name: getattr(arguments, f"{name}_column") for name in COLUMN_FLAGS}
    columns = SizeColumns(**{name: value for name, value in given.items() if value is not None})
    return table_from_parquet(arguments.data, columns)


def cost_model(name: str) -> CostFunction:
    """The preset of a name, or the model of a `config.json`.

    Raises:
        ArgumentError: No such preset, or the file is not a model's configuration.
        OSError: The file cannot be read.
    """
    if not name.endswith(".json"):
        if name not in PRESETS:
            raise ArgumentError(
                f"--model is {name!r}; allowed: {', '.join(PRESETS)}, or the path of a config.json"
            )
        return preset(name)
    try:
        config = json.loads(Path(name).read_text())
    except ValueError as error:
        raise ArgumentError(f"--model: {name} is not JSON ({error})") from error
    if not isinstance(config, dict):
        raise ArgumentError(f"--model: {name} holds no JSON object; give a model's config.json")
    return FlopsCost.from_config(config)


def topology(arguments: argparse.Namespace) -> Topology:
    """Topology of the options.

    Raises:
        ArgumentError: A number or choice is not allowed.
    """
    return Topology(
        dp_size=arguments.dp_size,
        num_microbatches=arguments.num_microbatches,
        max_microbatches=arguments.max_microbatches,
        barrier=arguments.barrier,
        modules=arguments.modules,
        rank_speeds=_rank_speeds(arguments),
        **limit_options(arguments),
        pp_size=arguments.pp_size,
        stages=_stages(arguments),
        schedule=arguments.schedule,
        virtual_stages=arguments.virtual_stages,
        forward_share=arguments.forward_share,
        microbatch_cost=arguments.microbatch_cost,
        max_in_flight=arguments.max_in_flight,
        deferral=arguments.deferral,
    )


def _rank_speeds(arguments: argparse.Namespace) -> Speeds:
    """What `--rank-speeds` stands for."""
    given = arguments.rank_speeds
    if given is None:
        return ()
    try:
        parsed = json.loads(given if given.startswith("{") else f"[{given}]")
        if not parsed:
            raise ValueError("it is empty")
    except ValueError as error:
        raise ArgumentError(
            f"--rank-speeds is {given!r}; allowed: a number for each rank, 1,1,0.5,0.25, or JSON "
            "with a list of them for each module"
        ) from error
    speeds: Speeds = parsed
    return speeds


def effort(arguments: argparse.Namespace) -> Effort:
    """What `--effort` stands for.

    Raises:
        ArgumentError: It is no choice and no number of seconds.
    """
    try:
        return checked_effort(float(arguments.effort))
    except ValueError:
        return checked_effort(arguments.effort)


def _stages(arguments: argparse.Namespace) -> tuple[dict[str, float], ...]:
    """What `--stages` stands for."""
    if arguments.stages == "even":
        return ()
    if arguments.stages == "encoder-first":
        return encoder_first(arguments.pp_size * arguments.virtual_stages)
    try:
        return tuple(json.loads(arguments.stages))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"--stages is {arguments.stages!r}; allowed: even, encoder-first, or a JSON list with "
            'a mapping for each stage, such as \'[{"vision": 1}, {"language": 28}]\''
        ) from error


def check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse outputs that cannot be written, before any work is done for them.

    Raises:
        ArgumentError: A folder does not exist, or the figure does not end in `.png`.
        BalancerError: A figure is asked for and matplotlib is not installed.
    """
    for flag, path in (("--out", arguments.out), ("--plot", arguments.plot)):
        if path is not None and not path.parent.is_dir():
            raise ArgumentError(f"{flag} is {path}; its folder does not exist: create it first")
    if arguments.plot is not None:
        if arguments.plot.suffix.lower() != ".png":
            raise ArgumentError(f"--plot is {arguments.plot}; allowed: a file name ending in .png")
        require_matplotlib()


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add DATA, `--model` and the options that name columns."""
    parser.add_argument(
        "data",
        nargs="+",
        metavar="DATA",
        help="Parquet files of sizes, one row a sample; or `embedded`: 8,192 real samples",
    )
    parser.add_argument(
        "--model",
        required=True,
        help=f"{', '.join(PRESETS)}, or the path of a Hugging Face config.json",
    )
    columns = parser.add_argument_group("names of columns")
    for field in fields(SizeColumns):
        columns.add_argument(
            COLUMN_FLAGS[field.name], metavar="NAME", help=f"default: {field.default}"
        )


def add_topology(parser: argparse.ArgumentParser) -> None:
    """Add ranks, microbatches, the barrier and the limits."""
    ranks = parser.add_argument_group("topology")
    ranks.add_argument("--dp-size", type=int, required=True, help="data-parallel ranks")
    ranks.add_argument(
        "--num-microbatches", type=int, default=1, help="microbatches of a rank in a step (1)"
    )
    ranks.add_argument(
        "--max-microbatches",
        type=int,
        help="most microbatches where limits ask for more (default: as many as needed)",
    )
    ranks.add_argument(
        "--barrier",
        choices=get_args(Barrier),
        default="microbatch",
        help="where ranks wait: once a step (DDP), in every microbatch (FSDP, TP, EP; default), or "
        "once a step, each rank being a pipeline",
    )
    ranks.add_argument(
        "--modules",
        choices=get_args(Modules),
        default="in_turn",
        help="wait after each module of a microbatch (default), or once for the microbatch",
    )
    ranks.add_argument(
        "--rank-speeds",
        help="relative speed of each rank, 1,1,0.5,0.25; or JSON with such a list a module",
    )
    add_limits(parser)
    _add_pipeline(parser)


def _add_pipeline(parser: argparse.ArgumentParser) -> None:
    """Add what the pipeline barrier needs to know."""
    pipeline = parser.add_argument_group("pipelines (--barrier pipeline)")
    pipeline.add_argument("--pp-size", type=int, default=1, help="pipeline ranks of the model")
    pipeline.add_argument(
        "--stages",
        default="even",
        help="what each stage holds: even (default), encoder-first (vision on the first, language "
        'on the others), or JSON: \'[{"vision": 1}, {"language": 28}]\'',
    )
    pipeline.add_argument("--schedule", choices=get_args(Schedule), default="1f1b")
    pipeline.add_argument(
        "--virtual-stages", type=int, default=1, help="stages of a pipeline rank (interleaved)"
    )
    pipeline.add_argument(
        "--forward-share", type=float, default=1 / 3, help="forward over forward and backward"
    )
    pipeline.add_argument(
        "--microbatch-cost",
        type=float,
        default=0.0,
        help="cost of any microbatch at a stage, in the unit of the costs",
    )
    pipeline.add_argument(
        "--max-in-flight", type=int, help="most tokens of the microbatches held at once"
    )
    late = "a sample's language work may run one microbatch after its encoder work"
    pipeline.add_argument("--deferral", action="store_true", help=late)


def add_epoch(parser: argparse.ArgumentParser) -> None:
    """Add which steps to plan, and the policies."""
    epoch = parser.add_argument_group("epoch")
    epoch.add_argument(
        "--global-batch-size",
        type=int,
        help="samples of a step over all ranks; without it a step takes what fits its microbatches",
    )
    epoch.add_argument("--seed", type=int, default=0)
    epoch.add_argument("--epoch", type=int, default=0)
    epoch.add_argument("--no-shuffle", action="store_true", help="keep the order of the data")
    epoch.add_argument("--steps", type=int, help="plan only the first STEPS steps")
    epoch.add_argument(
        "--oversize",
        choices=("error", "drop", "alone"),
        default="error",
        help="what to do with a sample over a limit",
    )
    epoch.add_argument(
        "--illegal",
        choices=("error", "drop"),
        default="error",
        help="what to do with a sample that the model cannot take",
    )
    epoch.add_argument(
        "--window-steps",
        type=int,
        default=1,
        help="steps that share out their samples; 1 (default) keeps membership strict",
    )
    epoch.add_argument(
        "--effort",
        default="default",
        metavar="fast|default|SECONDS",
        help="work that planning a step may take, counted so that every rank plans alike",
    )
    epoch.add_argument(
        "--tail",
        choices=("drop", "pad", "filler"),
        default="drop",
        help="what to do with the samples after the last whole step",
    )
