"""The program: `balancer plan`, `report`, `split`, `tokens`, `probe` and `calibrate`.

Exit code 0; 1 where samples or files were at fault and left out; 2 on bad input, with one line on
stderr that says what to do.
"""

import argparse
import re
import sys
from collections.abc import Sequence

from balancer.cli import calibrate, plan, probe, report, split, tokens
from balancer.cli.options import COLUMN_FLAGS
from balancer.errors import BalancerError

__all__ = ["main"]

_COMMANDS = {
    "plan": plan,
    "report": report,
    "split": split,
    "tokens": tokens,
    "probe": probe,
    "calibrate": calibrate,
}

_ARGUMENTS = (
    "dp_size",
    "forward_share",
    "global_batch_size",
    "max_images",
    "max_in_flight",
    "max_microbatches",
    "max_patches",
    "max_samples",
    "max_tokens",
    "microbatch_cost",
    "modality_sync",
    "num_microbatches",
    "num_workers",
    "pad_microbatch_to",
    "pad_sample_to",
    "pp_size",
    "rank_speeds",
    "virtual_stages",
    "window_steps",
)
"""Arguments that are an option wherever a message has them."""

_WORDS = (
    "alpha",
    "barrier",
    "deferral",
    "effort",
    "epoch",
    "error",
    "held_out",
    "illegal",
    "layout",
    "max_wait",
    "modules",
    "on_error",
    "oversize",
    "peak_flops_per_s",
    "schedule",
    "seed",
    "stages",
    "tail",
)
"""Arguments that are words too: an option where a message is about them, or gives them a value."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: Arguments after the program's name; those of the process when not given.
    """
    parser = argparse.ArgumentParser(
        prog="balancer",
        description="Places multimodal samples so that every rank finishes its step together.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for module in _COMMANDS.values():
        module.add_parser(commands)
    arguments = parser.parse_args(argv)
    try:
        return int(_COMMANDS[arguments.command].run(arguments))
    except (BalancerError, OSError) as error:
        print(f"balancer {arguments.command}: {_one_line(error, arguments)}", file=sys.stderr)
        return 2


def _one_line(error: Exception, arguments: argparse.Namespace) -> str:
    """Message of an error on one line, with options in place of arguments."""
    message = " ".join(str(error).split())
    if not hasattr(arguments, "oversize"):
        message = message.replace(', or pass oversize="drop" or "alone"', "")
    for size, flag in COLUMN_FLAGS.items():
        message = message.replace(f"set {size} to one of them", f"name one with {flag}")
    message = re.sub(r"^paths\b", "DATA", message).replace("num_steps", "--steps")
    message = message.replace("num_gpus", "--gpus").replace("limits.max_", "max_")
    if getattr(arguments, "rank_max_tokens", None) and arguments.max_tokens is None:
        message = re.sub(r"\bmax_tokens\b", "rank_max_tokens", message)
    names, words = "|".join((*_ARGUMENTS, "rank_max_tokens")), "|".join(_WORDS)
    return re.sub(
        rf"\b(?:{names})\b|^(?:{words})\b(?= (?:is|has|leave)\b|\[)|\b(?:{words})\b(?==)",
        lambda match: f"--{match[0].replace('_', '-')}",
        message,
    )
