"""Command line: `balancer plan` plans an epoch of sizes, `balancer report` judges a saved plan.

```text
balancer plan train.parquet --model qwen2.5-vl-7b --dp-size 16 --num-microbatches 4
    --max-tokens 16384 --global-batch-size 512 --out plan.npz
balancer report plan.npz train.parquet --model qwen2.5-vl-7b
```

Exit code 0, or 2 on bad input with one line on stderr that says what to do.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from balancer.cli_options import (
    COLUMN_FLAGS,
    build_parser,
    check_outputs,
    cost_model,
    sizes,
    topology,
)
from balancer.cost import Costs, evaluate_costs
from balancer.errors import BalancerError
from balancer.given_order import given_plan
from balancer.plan import Plan
from balancer.planner import EpochPlanner
from balancer.plots import plot_loads
from balancer.report import BalanceReport, balance_report

__all__ = ["main"]

_ARGUMENTS = (
    "dp_size",
    "global_batch_size",
    "max_images",
    "max_microbatches",
    "max_patches",
    "max_samples",
    "max_tokens",
    "num_microbatches",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: Arguments after the program's name; those of the process when not given.
    """
    arguments = build_parser().parse_args(argv)
    run = {"plan": _plan, "report": _report}[arguments.command]
    try:
        run(arguments)
    except (BalancerError, OSError) as error:
        print(f"balancer {arguments.command}: {_one_line(error)}", file=sys.stderr)
        return 2
    return 0


def _plan(arguments: argparse.Namespace) -> None:
    check_outputs(arguments)
    costs = _costs(arguments)
    planner = EpochPlanner(
        costs,
        topology(arguments),
        global_batch_size=arguments.global_batch_size,
        seed=arguments.seed,
        shuffle=not arguments.no_shuffle,
        oversize=arguments.oversize,
        illegal=arguments.illegal,
        tail=arguments.tail,
    )
    started = time.perf_counter()
    plan = planner.plan_epoch(
        arguments.epoch, num_steps=arguments.steps, progress=sys.stderr.isatty()
    )
    planning_s = time.perf_counter() - started
    given = given_plan(planner, plan)
    report = balance_report(plan, costs, given=given)
    written = _write(arguments, plan, costs, given)
    if arguments.json:
        print(json.dumps(_record(arguments, plan, report, written, planning_s), indent=2))
        return
    tokens = int(costs.tokens.sum())
    print(f"{len(costs)} samples, {tokens} tokens with {arguments.model}")
    print(f"{report}\n")
    print(f"planned in {planning_s:.2f} s, fingerprint {plan.fingerprint[:16]}")
    for path in written.values():
        print(f"wrote {path}")


def _report(arguments: argparse.Namespace) -> None:
    plan = Plan.load(arguments.plan)
    report = balance_report(plan, _costs(arguments))
    print(json.dumps({"report": report.to_dict()}, indent=2) if arguments.json else report)


def _costs(arguments: argparse.Namespace) -> Costs:
    return evaluate_costs(cost_model(arguments.model), sizes(arguments))


def _write(arguments: argparse.Namespace, plan: Plan, costs: Costs, given: Plan) -> dict[str, str]:
    """Write what was asked for; paths by what they hold."""
    written = {}
    if arguments.out is not None:
        plan.save(arguments.out)
        written["plan"] = str(arguments.out)
    if arguments.plot is not None:
        numbers = plot_loads(plan, costs, arguments.plot, given=given)
        written |= {"plot": str(arguments.plot), "loads": str(numbers)}
    return written


def _record(
    arguments: argparse.Namespace,
    plan: Plan,
    report: BalanceReport,
    written: dict[str, str],
    planning_s: float,
) -> dict[str, Any]:
    return {
        "data": arguments.data,
        "model": arguments.model,
        "topology": asdict(plan.topology),
        "global_batch_size": arguments.global_batch_size,
        "seed": arguments.seed,
        "epoch": arguments.epoch,
        "fingerprint": plan.fingerprint,
        "planning_s": planning_s,
        "report": report.to_dict(),
        "written": written,
    }


def _one_line(error: Exception) -> str:
    """Message of an error on one line, with options in place of arguments."""
    message = " ".join(str(error).split())
    for size, flag in COLUMN_FLAGS.items():
        message = message.replace(f"set {size} to one of them", f"name one with {flag}")
    message = re.sub(r"^paths\b", "DATA", message).replace("num_steps", "--steps")
    names = "|".join(_ARGUMENTS)
    return re.sub(
        rf"\b(?:{names})\b|\b(?:illegal|oversize|tail)(?==)",
        lambda match: f"--{match[0].replace('_', '-')}",
        message,
    )
