"""`balancer tokens`: what sizes come to in a model: patches and tokens of every sample.

```text
balancer tokens sizes.parquet --family qwen2.5-vl --set max_pixels=1003520
balancer tokens samples.jsonl --model config.json --json --out counts.parquet
```
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.cli.options import COLUMN_FLAGS, cost_model, sizes
from balancer.errors import ArgumentError
from balancer.flops.cost import FlopsCost
from balancer.flops.presets import PRESETS
from balancer.samples import SampleTable
from balancer.sizing.dataset import table_from_jsonl
from balancer.sizing.tables import SizeColumns
from balancer.token_counts import TokenCounts, token_counts
from balancer.tokens import TOKEN_RULES, TokenRule, token_rule

__all__ = ["add_parser", "run"]

_QUANTILES = (0.5, 0.9, 0.99)
_COLUMNS = ("text_tokens", "media_tokens", "tokens", "patches", "images")


def add_parser(subparsers: Any) -> None:
    """Add the command to those of the program."""
    parser = subparsers.add_parser("tokens", help="patches and tokens of samples in a model")
    parser.add_argument(
        "data",
        nargs="+",
        metavar="DATA",
        help="Parquet files of sizes, JSON lines with sizes, or `embedded`: 8,192 real samples",
    )
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument(
        "--model", help=f"{', '.join(PRESETS)}, or the path of a Hugging Face config.json"
    )
    model.add_argument("--family", help=f"token rule: {', '.join(sorted(TOKEN_RULES))}")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the family, for example max_pixels=1003520; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--out", type=Path, metavar="COUNTS.parquet", help="write the counts, one row a sample"
    )
    columns = parser.add_argument_group("names of columns")
    for field in fields(SizeColumns):
        columns.add_argument(
            COLUMN_FLAGS[field.name], metavar="NAME", help=f"default: {field.default}"
        )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0, or 1 where the model refuses samples.

    Raises:
        ArgumentError: The data, the model or a setting is not what it must be.
    """
    out = arguments.out
    if out is not None and not out.parent.is_dir():
        raise ArgumentError(f"--out is {out}; its folder does not exist: create it first")
    rule = _rule(arguments)
    counts = token_counts(_table(arguments), rule)
    if out is not None:
        _write(counts, out)
    summary = _summary(counts, rule.name) | {"out": None if out is None else str(out)}
    text = json.dumps(summary, indent=2) if arguments.json else "\n".join(_lines(summary))
    sys.stdout.write(f"{text}\n")
    return 1 if counts.refused.size else 0


def _rule(arguments: argparse.Namespace) -> TokenRule:
    settings = dict(_setting(text) for text in arguments.set)
    if arguments.family is not None:
        return token_rule(arguments.family, **settings)
    if settings:
        raise ArgumentError("--set goes with --family; a model has its settings in its config.json")
    cost = cost_model(arguments.model)
    if not isinstance(cost, FlopsCost):
        raise ArgumentError(f"--model is {arguments.model!r}, which has no token rule")
    return cost.rule


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ArgumentError(f"--set is {text!r}; allowed: NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _table(arguments: argparse.Namespace) -> SampleTable:
    if all(path.endswith((".jsonl", ".ndjson")) for path in arguments.data):
        return table_from_jsonl(arguments.data, progress=sys.stderr.isatty())
    return sizes(arguments)


def _summary(counts: TokenCounts, rule: str) -> dict[str, Any]:
    kept = np.setdiff1d(np.arange(len(counts)), counts.refused)
    return {
        "rule": rule,
        "samples": len(counts),
        "refused": counts.refused.tolist(),
        "refused_first": counts.why,
        "counts": {name: _spread(getattr(counts, name)[kept]) for name in _COLUMNS},
    }


def _spread(values: NDArray[np.int64]) -> dict[str, float]:
    if not values.size:
        return {"sum": 0, "mean": 0.0, **{f"p{q * 100:g}": 0.0 for q in _QUANTILES}, "max": 0}
    quantiles = np.quantile(values, _QUANTILES)
    return {
        "sum": int(values.sum()),
        "mean": float(values.mean()),
        **{f"p{q * 100:g}": float(v) for q, v in zip(_QUANTILES, quantiles, strict=True)},
        "max": int(values.max()),
    }


def _lines(summary: dict[str, Any]) -> Iterator[str]:
    yield f"{summary['samples']} samples with {summary['rule']}"
    spreads = summary["counts"]
    heads = list(spreads["tokens"])
    yield f"{'a sample':<14}" + "".join(f"{head:>14}" for head in heads)
    for name, spread in spreads.items():
        yield f"{name:<14}" + "".join(f"{spread[head]:>14,.0f}" for head in heads)
    if summary["refused"]:
        ids = ", ".join(map(str, summary["refused"][:10]))
        more = ", ..." if len(summary["refused"]) > 10 else ""
        yield f"{len(summary['refused'])} samples left out: {ids}{more}: {summary['refused_first']}"
    if summary["out"]:
        yield f"wrote {summary['out']}"


def _write(counts: TokenCounts, path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    refused = np.zeros(len(counts), np.bool_)
    refused[counts.refused] = True
    columns: dict[str, Any] = {"sample_id": np.arange(len(counts))}
    columns |= {name: getattr(counts, name) for name in _COLUMNS}
    parquet.write_table(pyarrow.table(columns | {"refused": refused}), path)
