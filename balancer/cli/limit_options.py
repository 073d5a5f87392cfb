"""Options about what a microbatch may hold, and what it must."""

import argparse
from dataclasses import replace
from typing import Any, get_args

from balancer.checks import check_count
from balancer.errors import ArgumentError
from balancer.limits import Layout, Limits

__all__ = ["add_limits", "limit_options"]


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the limits of a microbatch."""
    limits = parser.add_argument_group("limits of a microbatch")
    limits.add_argument(
        "--rank-max-tokens", type=int, nargs="+", metavar="N", help="--max-tokens of each rank"
    )
    for name in ("tokens", "patches", "images", "samples"):
        limits.add_argument(f"--max-{name}", type=int)
    limits.add_argument("--layout", choices=get_args(Layout), default="packed")
    for what in ("sample", "microbatch"):
        limits.add_argument(
            f"--pad-{what}-to",
            type=int,
            default=1,
            metavar="MULTIPLE",
            help=f"tokens of a {what} are rounded up to a multiple of this",
        )
    limits.add_argument(
        "--modality-sync",
        choices=("spread", "uniform"),
        help="place samples so that no rank skips a module that others run",
    )


def limit_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Arguments of a `Topology` that the options stand for.

    Raises:
        ArgumentError: A number is not allowed, or `--rank-max-tokens` has not one for each rank.
    """
    limits = Limits(
        max_tokens=arguments.max_tokens,
        max_patches=arguments.max_patches,
        max_images=arguments.max_images,
        max_samples=arguments.max_samples,
        layout=arguments.layout,
        pad_sample_to=arguments.pad_sample_to,
        pad_microbatch_to=arguments.pad_microbatch_to,
    )
    of_ranks = arguments.rank_max_tokens or ()
    for most in of_ranks:
        check_count("--rank-max-tokens", most)
    if of_ranks and len(of_ranks) != arguments.dp_size:
        raise ArgumentError(
            f"--rank-max-tokens has {len(of_ranks)} numbers for dp_size={arguments.dp_size} ranks; "
            "give one for each"
        )
    return {
        "limits": limits,
        "rank_limits": tuple(replace(limits, max_tokens=most) for most in of_ranks),
        "modality_sync": arguments.modality_sync,
    }
