"""`balancer plan`: plan an epoch of sizes, and show what it gives.

```text
balancer plan train.parquet --model qwen2.5-vl-7b --dp-size 16 --num-microbatches 4
    --max-tokens 16384 --global-batch-size 512 --out plan.npz
```
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from balancer.cli.options import (
    add_data,
    add_epoch,
    add_topology,
    check_outputs,
    effort,
    priced,
    topology,
)
from balancer.cost import Costs
from balancer.given_order import given_plan
from balancer.plan import Plan
from balancer.planner import EpochPlanner
from balancer.plots import plot_loads
from balancer.report import BalanceReport, balance_report

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the command to those of the program."""
    plan = subparsers.add_parser(
        "plan", help="plan an epoch, and show what it gives over the order of a shuffled loader"
    )
    add_data(plan)
    add_topology(plan)
    add_epoch(plan)
    plan.add_argument("--json", action="store_true", help="print JSON instead of a table")
    plan.add_argument("--out", type=Path, metavar="PLAN.npz", help="save the plan")
    plan.add_argument(
        "--plot", type=Path, metavar="LOADS.png", help="draw rank loads per step, with a CSV"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Raises:
        BalancerError: Bad input; the message says what to do.
    """
    check_outputs(arguments)
    costs = priced(arguments)
    planner = EpochPlanner(
        costs,
        topology(arguments),
        global_batch_size=arguments.global_batch_size,
        seed=arguments.seed,
        shuffle=not arguments.no_shuffle,
        oversize=arguments.oversize,
        illegal=arguments.illegal,
        tail=arguments.tail,
        window_steps=arguments.window_steps,
        effort=effort(arguments),
    )
    started = time.perf_counter()
    planner.plan(arguments.epoch, 0)  # compiles the kernels, once per process
    compile_s = time.perf_counter() - started
    started = time.perf_counter()
    plan = planner.plan_epoch(
        arguments.epoch, num_steps=arguments.steps, progress=sys.stderr.isatty()
    )
    planning_s = time.perf_counter() - started
    given = given_plan(planner, plan)
    whole = plan.num_steps == planner.num_steps or plan.num_steps % planner.window_steps == 0
    moved = planner.displacement(plan) if planner.window_steps > 1 and whole else None
    report = balance_report(plan, costs, given=given, displacement=moved)
    written = _write(arguments, plan, costs, given)
    if arguments.json:
        times = {"planning_s": planning_s, "compile_s": compile_s}
        print(json.dumps(_record(arguments, plan, report, written) | times, indent=2))
        return 0
    tokens = int(costs.tokens.sum())
    print(f"{len(costs)} samples, {tokens} tokens with {arguments.model}")
    print(f"{report}\n")
    once = f"after {compile_s:.0f} s of compiling, once per process"
    print(f"planned {plan.num_steps} steps in {planning_s:.2f} s ({once})")
    print(f"fingerprint {plan.fingerprint[:16]}")
    for path in written.values():
        print(f"wrote {path}")
    return 0


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
) -> dict[str, Any]:
    return {
        "data": arguments.data,
        "model": arguments.model,
        "topology": asdict(plan.topology),
        "global_batch_size": arguments.global_batch_size,
        "seed": arguments.seed,
        "epoch": arguments.epoch,
        "fingerprint": plan.fingerprint,
        "report": report.to_dict(),
        "written": written,
    }
