"""The sequence of the demonstration: size, start, compute, check, save, close."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

import hyperplane
from hyperplane.demo import chart, check, data, job
from hyperplane.errors import Fault, HyperplaneError, RequestError

if TYPE_CHECKING:
    import dask.dataframe as dd
    from distributed import Client, Future

    from hyperplane import SizingAdvice

#: Memory that the check takes at its peak for each flight: 112 bytes of dataframe, and what reading
#: and grouping it take (measured). Data that does not fit into this machine is not checked.
BYTES_PER_FLIGHT = 800


class JobFailed(HyperplaneError):
    """The computation failed on the cluster, which was closed again."""


class Steps:
    """Told of each step as it happens; every method does nothing unless overridden."""

    def prepared(self, url: str, written: bool | None) -> None:
        """The data is there; ``written`` when this run has made it, None when it was given."""

    def sized(self, advice: SizingAdvice) -> None:
        """The calculator has advised a cluster."""

    def starting(self) -> None:
        """The cluster is about to be started."""

    def started(self, client: Client) -> None:
        """The cluster can be used."""

    def computing(self, futures: list[Future[Any]]) -> None:
        """The work is on the cluster; to return at once or when it is done is both right."""

    def checked(self, compared: tuple[str, ...]) -> None:
        """What was compared with pandas, and equal; empty when the data is too large for that."""


@dataclass
class Outcome:
    """What a run has done.

    Parameters
    ----------
    url : str
        The data.
    results : Results
        Of the job.
    compared : tuple of str
        What pandas agreed on.
    files : dict of str to pathlib.Path
        Where the results are.
    cluster : dict of str to int
        Worker processes, threads and bytes of memory that the job ran on.
    seconds : dict of str to float
        What each step took.
    """

    url: str
    results: job.Results
    compared: tuple[str, ...]
    files: dict[str, Path]
    cluster: dict[str, int]
    seconds: dict[str, float]

    @property
    def flights(self) -> int:
        """Rows of the data."""
        return int(self.results.hours["flights"].sum())

    @property
    def departures(self) -> int:
        """Flights that were not cancelled."""
        return int(self.results.hours["departures"].sum())

    def to_dict(self) -> dict[str, Any]:
        """The outcome as JSON-able values."""
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


def run(out: Path, url: str | None = None, steps: Steps | None = None) -> Outcome:
    """Run the whole job.

    Parameters
    ----------
    out : pathlib.Path
        Folder for the data set and the results.
    url : str, optional
        Other flights: a path, glob or fsspec URL of CSV or Parquet files with the same columns.
    steps : Steps, optional
        Told of each step.

    Returns
    -------
    Outcome

    Raises
    ------
    RequestError
        When the data cannot be used; nothing was started.
    MissingPackage
        When the extra ``demo`` is not installed; nothing was started.
    EngineError
        When the cluster did not come up.
    JobFailed, Mismatch
        When the work failed, or pandas disagrees. The cluster is closed, nothing is saved.
    """
    steps = steps or Steps()
    watch = _Stopwatch()
    with watch.timed("total"):
        chart.require()
        with watch.timed("data"):
            source, written = _source(out, url)
            steps.prepared(source, written)
        with watch.timed("size"):
            advice = hyperplane.size_cluster(source, "groupby")
            flights = data.read_with_dask(source)
            steps.sized(advice)
        with _running(advice, steps, watch) as client:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            with watch.timed("compute"):
                results = _computed(client, flights, steps)
            with watch.timed("check"):
                compared = _checked(results, source)
                steps.checked(compared)
            with watch.timed("save"):
                files = _saved(results, out / "results")
    cluster = {
        "workers": len(workers),
        "threads": sum(worker["nthreads"] for worker in workers),
        "ram_bytes": sum(worker["memory_limit"] for worker in workers),
    }
    return Outcome(source, results, compared, files, cluster, watch.seconds)


def _source(out: Path, url: str | None) -> tuple[str, bool | None]:
    """The data and whether it was written now; the output folder is there afterwards."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        path, written = (url, None) if url is not None else data.prepare(out)
    except OSError as error:
        allowed = f"a folder that can be written ({error})"
        raise RequestError([Fault("out", repr(str(out)), allowed)]) from error
    return str(path), written


@contextmanager
def _running(advice: SizingAdvice, steps: Steps, watch: _Stopwatch) -> Iterator[Client]:
    """A started cluster, which is closed whatever happens to the work."""
    steps.starting()
    with watch.timed("start"):
        client, cluster = hyperplane.initialize_cluster(advice)
    try:
        steps.started(client)
        yield client
    finally:
        with watch.timed("close"):
            client.close()
            cluster.close()


def _computed(client: Client, flights: dd.DataFrame, steps: Steps) -> job.Results:
    from distributed import KilledWorker

    futures = client.compute(job.lazy_results(flights))
    steps.computing(futures)
    try:
        results = job.finish(*client.gather(futures))
    except (KilledWorker, OSError, TypeError, ValueError) as error:
        raise JobFailed(f"the computation failed: {type(error).__name__}: {error}") from error
    if results.longest.empty:
        raise JobFailed("no flight of the data has departed: there is nothing to show")
    return results


def free_memory() -> int:
    """Bytes that this machine could give to a process now."""
    return int(psutil.virtual_memory().available)


def _checked(found: job.Results, source: str) -> tuple[str, ...]:
    if BYTES_PER_FLIGHT * int(found.hours["flights"].sum()) > free_memory():
        return ()
    return check.compare(found, job.results_in_pandas(data.read_with_pandas(source)))


def _saved(results: job.Results, folder: Path) -> dict[str, Path]:
    """Write every result beside its final name first: no reader meets half a file."""
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
