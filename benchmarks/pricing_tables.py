"""The records of the pricing experiment as Markdown tables."""

from collections.abc import Callable, Sequence

from benchmarks.measure import Record

__all__ = ["pricing_tables"]

_DIRECTIONS = ("forward", "trained", "frozen_with_grad", "layers", "layers_early_stop")


def pricing_tables(records: Sequence[Record]) -> list[str]:
    """A table for each part that was measured."""
    tables: tuple[Callable[[Sequence[Record]], list[str]], ...] = (
        _tokens,
        _flops,
        _times,
        _known,
        _speed,
    )
    return [line for table in tables for line in table(records)]


def _tokens(records: Sequence[Record]) -> list[str]:
    rows = [
        [r.data, *_source(r), f"{r.n:,}", f"{r.value:.0f}"]
        for r in records
        if r.metric == "mismatches"
    ]
    total = f"{sum(r.n for r in records if r.metric == 'mismatches'):,}"
    wrong = f"{sum(r.value for r in records if r.metric == 'mismatches'):.0f}"
    return _table(
        "Token rules beside published code",
        "Random and adversarial sizes of images, videos and sounds; every count must be equal, and "
        "what one refuses the other must.",
        ["family", "published code", "version", "cases", "mismatches"],
        [*rows, ["**all**", "", "", total, wrong]] if rows else [],
        left=3,
    )


def _source(record: Record) -> list[str]:
    package, _, name = record.planner.partition(":")
    return [f"{name} ({package})", record.versions.get(package, "")]


def _flops(records: Sequence[Record]) -> list[str]:
    errors = {
        (r.data, r.planner): f"{r.value:.2%}" for r in records if r.metric == "flops_relative_error"
    }
    models = list(dict.fromkeys(model for model, _ in errors))
    special = [key for key in errors if key[1] not in _DIRECTIONS]
    lines = _table(
        "FLOPs beside torch's FlopCounterMode",
        "Relative error on transformers models on the meta device, attention counted as the full "
        'square (`causal="full"`): forward; forward and backward; backward of inputs alone; layers '
        "computed again, wholly or to the last tensor needed.",
        ["model", *_DIRECTIONS],
        [[model, *(errors.get((model, way), "") for way in _DIRECTIONS)] for model in models],
    )
    if not special:
        return lines
    header = ["model", "adapters or projector alone", "error"]
    return lines + _table("", "", header, [[*key, errors[key]] for key in special], left=2)


def _times(records: Sequence[Record]) -> list[str]:
    held = [r for r in records if r.metric in ("mape_heldout", "spearman_heldout")]
    values = {(r.data, r.planner, r.metric): r for r in records}
    rows = []
    for data, predictor in dict.fromkeys((r.data, r.planner) for r in held):
        mape = values[data, predictor, "mape_heldout"]
        rank = values[data, predictor, "spearman_heldout"]
        worst = values.get((data, predictor, "mape_heldout_worst"))
        shown = f"{mape.value:.1%}" + (f" ({worst.value:.1%})" if worst else "")
        rows.append([data, predictor.replace("_", " "), shown, f"{rank.value:.3f}", str(mape.n)])
    return _table(
        "Predicted beside measured CPU time",
        "Small models, forward and backward of packed microbatches; and images read, decoded, "
        "resized, normalised. Mean absolute error on the half held out, outliers included (worst "
        "of ten halves).",
        ["timed", "predictor", "error", "rank correlation", "n"],
        rows,
        left=2,
    )


def _known(records: Sequence[Record]) -> list[str]:
    names = {
        "coefficient_error_median": "worst of three coefficients, median",
        "coefficient_error_worst": "worst of three coefficients, worst",
        "delay_worst": "samples until the switch is found, worst",
        "false_alarms": "false alarms",
    }
    return _table(
        "Known truths",
        "Coefficients under 5 % noise and 3 % tenfold outliers; a switch from short text to "
        "several images; an unchanged mixture with heavy tails.",
        ["data", "method", "what", "value", "n"],
        [
            [r.data, r.planner, names[r.metric], _number(r), f"{r.n:,}"]
            for r in records
            if r.metric in names
        ],
        left=3,
    )


def _number(record: Record) -> str:
    return f"{record.value:.1%}" if record.unit == "ratio" else f"{record.value:.0f}"


def _speed(records: Sequence[Record]) -> list[str]:
    values = {(r.data, r.metric): r for r in records}
    rows = [
        [
            r.data,
            r.planner,
            f"{values[r.data, 'rule_seconds'].value:.3f}",
            f"{values[r.data, 'processor_seconds'].value:.2f}",
            f"{r.value:.0f}",
            f"{r.n:,}",
        ]
        for r in records
        if r.metric == "seconds_vs_transformers"
    ]
    return _table(
        "Speed of the rules",
        "CPU seconds of one thread for all images; the processor's loop over "
        "`get_number_of_image_patches` is extrapolated from 20,000.",
        ["family", "processor", "rule (s)", "processor (s)", "times faster", "images"],
        rows,
        left=2,
    )


def _table(
    title: str,
    text: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
) -> list[str]:
    """A table with its title and text; nothing where there are no rows."""
    if not rows:
        return []
    above = [f"## {title}", "", text, ""] if title else []
    rule = "|" + "---|" * left + "--:|" * (len(header) - left)
    return [*above, _row(header), rule, *(_row(row) for row in rows), ""]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
