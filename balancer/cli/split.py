"""`balancer split`: how many GPUs the encoders and the language model should get.

```text
balancer split train.parquet --model qwen2.5-vl-7b --gpus 16 --layout 4x8 --layout 2x16
```
"""

import argparse
import json
from typing import Any

from balancer.cli.options import add_data, priced
from balancer.errors import ArgumentError
from balancer.limits import Limits
from balancer.split import SplitLayout, recommend_split

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the command to those of the program."""
    split = subparsers.add_parser(
        "split", help="how many GPUs the encoders and the language model should get"
    )
    add_data(split)
    split.add_argument("--gpus", type=int, required=True, help="GPUs of the job")
    split.add_argument(
        "--layout", action="append", required=True, metavar="DPxM[xTP]",
        help="pipelines side by side x microbatches of a step x GPUs of a stage (1); may be given "
        "several times",
    )  # fmt: skip
    split.add_argument(
        "--global-batch-size", type=int, help="samples of a step (default: as many as are stable)"
    )
    split.add_argument("--steps", type=int, default=2, help="steps planned for each split (2)")
    split.add_argument("--max-tokens", type=int, help="most tokens of a microbatch")
    split.add_argument("--schedule", choices=("1f1b", "eager_1f1b"), default="1f1b")
    split.add_argument(
        "--alpha", type=float, default=0.05, help="risk of calling a batch size stable (0.05)"
    )
    split.add_argument(
        "--error", type=float, default=0.05, help="batches that may ask for another split (0.05)"
    )
    split.add_argument("--seed", type=int, default=0)
    split.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Raises:
        BalancerError: Bad input; the message says what to do.
    """
    found = recommend_split(
        priced(arguments),
        num_gpus=arguments.gpus,
        layouts=[_layout(text) for text in arguments.layout],
        global_batch_size=arguments.global_batch_size,
        num_steps=arguments.steps,
        limits=Limits(max_tokens=arguments.max_tokens),
        schedule=arguments.schedule,
        alpha=arguments.alpha,
        error=arguments.error,
        seed=arguments.seed,
    )
    print(json.dumps(found.to_dict(), indent=2) if arguments.json else found)
    return 0


def _layout(text: str) -> SplitLayout:
    """What one `--layout` stands for."""
    parts = text.split("x")
    if len(parts) not in (2, 3) or not all(part.isdecimal() and int(part) for part in parts):
        raise ArgumentError(
            f"--layout is {text!r}; allowed: DPxM or DPxMxTP, numbers from 1 on, such as 4x8 for "
            "4 pipelines of 8 microbatches"
        )
    names = ("dp_size", "num_microbatches", "gpus_per_stage")
    return SplitLayout(**dict(zip(names, map(int, parts), strict=False)))
