"""`balancer report`: what a saved plan gives.

```text
balancer report plan.npz train.parquet --model qwen2.5-vl-7b
```
"""

import argparse
import json
from pathlib import Path
from typing import Any

from balancer.cli.options import add_data, priced
from balancer.plan import Plan
from balancer.report import balance_report

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the command to those of the program."""
    report = subparsers.add_parser("report", help="report on a saved plan")
    report.add_argument("plan", type=Path, metavar="PLAN.npz")
    add_data(report)
    report.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Raises:
        BalancerError: Bad input; the message says what to do.
    """
    report = balance_report(Plan.load(arguments.plan), priced(arguments))
    print(json.dumps({"report": report.to_dict()}, indent=2) if arguments.json else report)
    return 0
