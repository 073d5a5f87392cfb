"""The numbers of each step, written to a CSV file or to TensorBoard."""

import csv
from pathlib import Path
from typing import Any, TextIO

__all__ = ["StepLog", "TensorBoardLog"]


class StepLog:
    """Appends a line a step to a CSV file; give it to `BalancedDataLoader(step_log=...)`.

    The columns are `epoch`, `step`, `global_step`, `dp_rank` and those of `loader.stats()`, each of
    one step. A file that has lines already, as after a resume, gets no second header.

    Args:
        path: The file. Only rank 0 writes, unless the name has `{dp_rank}` in it: then each rank
            writes to its own.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = StepLog(Path(folder) / "steps.csv")
        ...     log({"step": 0, "dp_rank": 0, "samples": 8})
        ...     log({"step": 0, "dp_rank": 1, "samples": 8})
        ...     log.close()
        ...     (Path(folder) / "steps.csv").read_text().split()
        ['step,dp_rank,samples', '0,0,8']
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._file: TextIO | None = None

    def __call__(self, numbers: dict[str, float]) -> None:
        """Write the numbers of one step."""
        dp_rank = int(numbers["dp_rank"])
        if dp_rank and "{dp_rank}" not in self.path:
            return
        if self._file is None:
            path = Path(self.path.replace("{dp_rank}", str(dp_rank)))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", newline="", encoding="utf-8")
            if not self._file.tell():
                csv.writer(self._file, lineterminator="\n").writerow(numbers)
        csv.writer(self._file, lineterminator="\n").writerow(numbers.values())
        self._file.flush()

    def close(self) -> None:
        """Close the file; the next step opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None


class TensorBoardLog:
    """Adds the numbers of each step to a TensorBoard writer, at their `global_step`.

    Args:
        writer: A `torch.utils.tensorboard.SummaryWriter`, or any object with its `add_scalar`.
        prefix: What each tag begins with.

    Example:
        >>> class Printer:
        ...     def add_scalar(self, tag, value, step):
        ...         print(tag, value, step)
        >>> TensorBoardLog(Printer())({"epoch": 1, "step": 2, "global_step": 9, "dp_rank": 0,
        ...                            "imbalance_mean": 1.01})
        loader/imbalance_mean 1.01 9
    """

    def __init__(self, writer: Any, *, prefix: str = "loader/") -> None:
        self.writer = writer
        self.prefix = prefix

    def __call__(self, numbers: dict[str, float]) -> None:
        """Add the numbers of one step."""
        for name, value in numbers.items():
            if name not in ("epoch", "step", "global_step", "dp_rank"):
                self.writer.add_scalar(self.prefix + name, value, int(numbers["global_step"]))
