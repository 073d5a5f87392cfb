"""One pass over a dataset: the size of every sample, here or in worker processes."""

import multiprocessing
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Literal

from tqdm import tqdm

from balancer.errors import ArgumentError, BalancerError, SampleError
from balancer.samples import SampleTable
from balancer.sizing.columns import GrowingColumns, joined_tables
from balancer.sizing.sample_size import SampleSize, size_of

__all__ = ["SizeFunction", "StartMethod", "sized", "sized_in_processes", "sizes_of"]

SizeFunction = Callable[[Any], SampleSize | Mapping[str, Any]]
"""From a sample of the dataset to its size."""

StartMethod = Literal["fork", "spawn", "forkserver"]
_WORK: list[Any] = []  # dataset and function of a worker process


def sized(dataset: Any, size_fn: SizeFunction, num: int | None, *, progress: bool) -> SampleTable:
    """Sizes of `dataset[0]` to `dataset[num - 1]`, or of all that an iterable yields (`None`)."""
    samples = dataset if num is None else _samples(dataset, range(num))
    bar = tqdm(samples, total=num, desc="sizing", unit="sample", disable=not progress)
    with bar:
        return sizes_of(bar, size_fn)


def sized_in_processes(
    dataset: Any,
    size_fn: SizeFunction,
    num: int,
    *,
    num_workers: int,
    start_method: StartMethod | None,
    progress: bool,
) -> SampleTable:
    """The same table from processes that take ranges of rows in turn.

    Raises:
        ArgumentError: `size_fn` cannot be sent to a process that is not forked.
        BalancerError: A process died.
        SampleError: As in `sizes_of`; the passes that have not begun are called off.
    """
    context = multiprocessing.get_context(start_method)
    if context.get_start_method() != "fork":
        _check_picklable(size_fn)
    size = max(1, min(1024, num // (8 * num_workers)))
    ranges = [range(start, min(start + size, num)) for start in range(0, num, size)]
    pool = ProcessPoolExecutor(
        num_workers, mp_context=context, initializer=_start_worker, initargs=(dataset, size_fn)
    )
    tables: dict[int, SampleTable] = {}
    bar = tqdm(total=num, desc="sizing", unit="sample", disable=not progress)
    with pool, bar:
        try:
            futures = {pool.submit(_sized_range, rows): rows for rows in ranges}
            for future in as_completed(futures):
                rows = futures.pop(future)
                tables[rows.start] = future.result()
                bar.update(len(rows))
        except BrokenProcessPool as error:
            raise BalancerError(
                f"a worker process died while sizing (num_workers={num_workers}), most often for "
                "want of memory; set fewer num_workers, or 0 to see the fault in this process"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return joined_tables([tables[start] for start in sorted(tables)])


def sizes_of(samples: Iterable[Any], size_fn: SizeFunction, first: int = 0) -> SampleTable:
    """Sizes of samples in order, the first of which has the id `first`.

    Raises:
        SampleError: `size_fn` raised, or a size is impossible; names the sample.
    """
    columns = GrowingColumns(first)
    for sample_id, sample in enumerate(samples, first):
        try:
            size = size_of(size_fn(sample))
        except Exception as error:
            raise _failed("size_fn", sample_id, error) from error
        columns.append(size)
    return columns.table()


def _samples(dataset: Any, rows: range) -> Iterator[Any]:
    for row in rows:
        try:
            sample = dataset[row]
        except Exception as error:
            raise _failed("dataset", row, error) from error
        yield sample


def _failed(what: str, sample_id: int, error: Exception) -> SampleError:
    told = str(error) if isinstance(error, BalancerError) else f"{type(error).__name__}: {error}"
    return SampleError(f"{what} failed on sample {sample_id}: {told}", sample_ids=[sample_id])


def _start_worker(dataset: Any, size_fn: SizeFunction) -> None:
    _WORK[:] = [dataset, size_fn]


def _sized_range(rows: range) -> SampleTable:
    dataset, size_fn = _WORK
    return sizes_of(_samples(dataset, rows), size_fn, rows.start)


def _check_picklable(size_fn: SizeFunction) -> None:
    try:
        pickle.dumps(size_fn)
    except Exception as error:
        raise ArgumentError(
            f"size_fn cannot be sent to worker processes ({error}); define it at the top of a "
            "module, or set num_workers=0 or start_method='fork'"
        ) from error
