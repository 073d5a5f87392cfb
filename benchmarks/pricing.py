"""Every price beside the truth: tokens, FLOPs, real times, CPU prep, outliers, speed."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from balancer.errors import ArgumentError
from benchmarks.measure import Record
from benchmarks.pricing_exact import flop_records, token_records
from benchmarks.pricing_figure import draw_predicted
from benchmarks.pricing_known import known_records
from benchmarks.pricing_prep import prep_predictions
from benchmarks.pricing_records import Predicted, heldout_records
from benchmarks.pricing_speed import speed_records

__all__ = ["Part", "measure_pricing"]

Part = Literal["tokens", "flops", "times", "prep", "known", "speed"]
"""Token rules and FLOPs checked; small models and CPU prep timed; known truths; speed."""

_NEEDS: dict[str, tuple[str, ...]] = {
    "tokens": ("tests", "transformers", "PIL"),
    "flops": ("tests", "transformers", "torch"),
    "times": ("torch", "scipy"),
    "prep": ("PIL", "scipy"),
    "known": ("scipy",),
    "speed": ("transformers", "PIL"),
}


def measure_pricing(
    *,
    name: str,
    parts: Sequence[str] = get_args(Part),
    demo_dir: str | Path,
    seed: int = 0,
    quick: bool = False,
    figure: str | Path | None = None,
) -> list[Record]:
    """Records of the given parts; what cannot run here is skipped with a notice.

    Args:
        name: Name of the experiment in the records.
        parts: What to measure, see `Part`.
        demo_dir: Folder of images whose preparation is timed.
        seed: Seed of sizes, shapes and halves held out.
        quick: Fewer sizes, shapes and passes, to see that it runs.
        figure: Where to draw predicted against measured times, as a `.png` beside this name.
    """
    unknown = sorted(set(parts) - set(get_args(Part)))
    if unknown:
        raise ArgumentError(f"parts has {unknown[0]!r}; allowed: {', '.join(get_args(Part))}")
    records: list[Record] = []
    panels: list[Predicted] = []
    for part in parts:
        missing = _missing(part, Path(demo_dir))
        if missing is not None:
            print(f"{name}: part {part} needs {missing}, skipped", file=sys.stderr)
            continue
        print(f"{name}: {part}", file=sys.stderr)
        for drawn in _predictions(part, demo_dir, seed, quick):
            records += heldout_records(name, drawn)
            panels.append(drawn[0])
        records += _checks(part, name, seed, quick)
    if figure is not None and panels:
        draw_predicted(panels, Path(figure).with_suffix(".png"))
    return records


def _missing(part: str, demo_dir: Path) -> str | None:
    """What the part needs and this machine lacks."""
    if part == "prep" and not demo_dir.is_dir():
        return f"images in {demo_dir} (set demo_dir)"
    absent = [module for module in _NEEDS[part] if importlib.util.find_spec(module) is None]
    return ", ".join(absent) or None


def _predictions(part: str, demo_dir: str | Path, seed: int, quick: bool) -> list[list[Predicted]]:
    """Predictions beside times of the parts that time something, a list of splits each."""
    if part == "times":
        from benchmarks.pricing_times import time_predictions

        return [[predicted] for predicted in time_predictions(seed=seed, quick=quick)]
    if part == "prep":
        return [prep_predictions(demo_dir, quick=quick)]
    return []


def _checks(part: str, name: str, seed: int, quick: bool) -> list[Record]:
    """Records of the parts that are checked against something known."""
    if part == "tokens":
        return token_records(name, seed=seed, quick=quick)
    if part == "flops":
        return flop_records(name, quick=quick)
    if part == "known":
        return known_records(name, quick=quick)
    return speed_records(name, seed=seed, quick=quick) if part == "speed" else []
