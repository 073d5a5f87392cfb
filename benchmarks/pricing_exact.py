"""Token counts beside published processors, and FLOPs beside torch's counter: equal or not."""

import sys
from collections import defaultdict
from dataclasses import replace

from benchmarks.measure import Record
from benchmarks.pricing_records import pricing_record

__all__ = ["flop_records", "token_records"]

_QUICK_MODELS = ("llama", "qwen2.5-vl-image", "siglip", "whisper")


def token_records(name: str, *, seed: int, quick: bool) -> list[Record]:
    """Mismatches of each family's rule with the published code that counts for it.

    2,000 random sizes (100 where `quick`) beside those at the family's thresholds; cases of one
    source with other settings are added up.
    """
    from tests.token_checks import token_check_rows
    from tests.token_oracles import has_torchvision

    if not has_torchvision():
        print(f"{name}: video processors need torchvision, skipped", file=sys.stderr)
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in token_check_rows(100 if quick else 2000, seed):
        held = sums[row.family, row.source, row.version]
        held[0] += row.cases
        held[1] += row.mismatches
    records = []
    for (family, source, version), (cases, wrong) in sums.items():
        record = pricing_record(name, family, source, "mismatches", wrong, unit="cases", n=cases)
        package = source.split(":")[0]
        records.append(replace(record, versions=record.versions | {package: version}))
    return records


def flop_records(name: str, *, quick: bool) -> list[Record]:
    """Relative error of FLOPs against `FlopCounterMode`, a record a model and direction."""
    from tests.flop_cases import CASES, flop_rows
    from tests.flop_oracles import flop_row

    if quick:
        directions = ("forward", "trained")
        rows = [flop_row(CASES[model](), way) for model in _QUICK_MODELS for way in directions]
    else:
        rows = list(flop_rows())
    return [
        pricing_record(
            name, row.model, row.direction, "flops_relative_error", row.relative_error, n=1
        )
        for row in rows
    ]
