"""Many Zarr stores with latency: the common ways to open them, and ``open_zarr_many``.

The stores are local files behind an asynchronous file system that waits before each read, like an
object store. Each run is a separate process, alternating. Measured are the wall time and the CPU
time of the process and its workers from the call to the result, and their peak memory. Imports
happen before the measurement; the start of a cluster is a separate column.

    python benchmarks/zarr_many.py --stores 24 --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import psutil
import xarray as xr
from abab import run_alternately
from fsspec.asyn import AsyncFileSystem

DAYS, LATITUDES, LONGITUDES = 10, 60, 90
VARIABLES = ("rain", "wind", "snow", "sun")
RULES = {"compat": "no_conflicts", "combine_attrs": "no_conflicts", "join": "outer"}


class DelayedFileSystem(AsyncFileSystem):
    """Local file system with a delay before each request."""

    protocol = "late"

    def __init__(self, delay: float = 0.05, **options: Any) -> None:
        super().__init__(delay=delay, **options)
        self.delay = delay

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return "/" + str(path).removeprefix("late://").strip("/")

    async def _cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        await asyncio.sleep(self.delay)
        return Path(self._strip_protocol(path)).read_bytes()[start:end]

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        await asyncio.sleep(self.delay)
        return self._entry(Path(self._strip_protocol(path)))

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        await asyncio.sleep(self.delay)
        entries = [self._entry(child) for child in Path(self._strip_protocol(path)).iterdir()]
        return entries if detail else [entry["name"] for entry in entries]

    @staticmethod
    def _entry(path: Path) -> dict[str, Any]:
        kind = "directory" if path.is_dir() else "file"
        return {"name": str(path), "size": path.stat().st_size, "type": kind}


fsspec.register_implementation("late", DelayedFileSystem, clobber=True)


def write(folder: Path, stores: int) -> None:
    """Write stores of ten days each on one grid, with its latitudes and longitudes."""
    rng = np.random.default_rng(0)
    grid = rng.random((LATITUDES, LONGITUDES))
    for number in range(stores):
        start = pd.Timestamp("2020-01-01") + pd.Timedelta(days=DAYS * number)
        shape = (DAYS, LATITUDES, LONGITUDES)
        xr.Dataset(
            {name: (("time", "y", "x"), rng.random(shape, "f4")) for name in VARIABLES},
            coords={
                "time": pd.date_range(start, periods=DAYS),
                "y": np.arange(LATITUDES),
                "x": np.arange(LONGITUDES),
                "latitude": (("y", "x"), grid),
                "longitude": (("y", "x"), grid.copy()),
            },
            attrs={"title": "weather"},
        ).to_zarr(folder / f"{number:04d}.zarr", zarr_format=2, consolidated=True)


def sequential(urls: list[str], client: Any) -> xr.Dataset:
    return xr.merge([xr.open_zarr(url) for url in urls], **RULES)


def sequential_concat(urls: list[str], client: Any) -> xr.Dataset:
    return xr.concat(
        [xr.open_zarr(url) for url in urls],
        "time",
        data_vars="minimal",
        coords="minimal",
        **RULES,
    )


def mapped(urls: list[str], client: Any) -> xr.Dataset:
    return xr.merge(client.gather(client.map(xr.open_zarr, urls)), **RULES)


def parallel(urls: list[str], client: Any) -> xr.Dataset:
    return xr.open_mfdataset(
        urls,
        engine="zarr",
        parallel=True,
        combine="nested",
        concat_dim="time",
        data_vars="minimal",
        coords="minimal",
        **RULES,
    )


def ours_merge(urls: list[str], client: Any) -> xr.Dataset:
    from hyperplane.array import open_zarr_many

    return open_zarr_many(urls)


def ours_concat(urls: list[str], client: Any) -> xr.Dataset:
    from hyperplane.array import open_zarr_many

    return open_zarr_many(urls, combine="concat", concat_dim="time")


def ours_merge_load(urls: list[str], client: Any) -> xr.Dataset:
    from hyperplane.array import open_zarr_many

    return open_zarr_many(urls, load=True)


#: Name -> function that opens the stores, and whether it runs on a cluster.
FORMS: dict[str, tuple[Callable[[list[str], Any], xr.Dataset], bool]] = {
    "sequential, merge": (sequential, False),
    "sequential, concat": (sequential_concat, False),
    "client.map, gather, merge": (mapped, True),
    "open_mfdataset(parallel)": (parallel, False),
    "open_mfdataset(parallel), cluster": (parallel, True),
    "ours, merge": (ours_merge, False),
    "ours, concat": (ours_concat, False),
    "ours, merge, cluster": (ours_merge, True),
    "ours, merge, load=True": (ours_merge_load, False),
}


class ProcessTreeMonitor:
    """Measures CPU time and peak memory of this process and its descendants."""

    def __init__(self) -> None:
        self.process, self.peak, self.stop = psutil.Process(), 0, threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _processes(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def cpu(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._processes())

    def _run(self) -> None:
        while not self.stop.wait(0.05):
            total = 0
            for process in self._processes():
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            self.peak = max(self.peak, total)


def _first_use(url: str) -> None:
    """Open and read a store without delay, so that imports on first use are not measured."""
    xr.open_zarr(url.removeprefix("late://")).load(scheduler="sync")


def run(name: str, folder: str) -> None:
    """Run one form once; print its figures as JSON."""
    import hyperplane.array  # noqa: F401 - imports are not measured

    warnings.simplefilter("ignore")
    form, with_cluster = FORMS[name]
    urls = [f"late://{path}" for path in sorted(Path(folder).glob("*.zarr"))]
    _first_use(urls[0])
    import dask.array  # noqa: F401
    import distributed

    monitor = ProcessTreeMonitor()
    monitor.thread.start()
    began, client, cluster = time.perf_counter(), None, None
    if with_cluster:
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        )
        client = distributed.Client(cluster)
    started = time.perf_counter() - began
    if client is not None:
        client.run(_first_use, urls[0])
    cpu, began = monitor.cpu(), time.perf_counter()
    data = form(urls, client)
    opened, opened_cpu = time.perf_counter() - began, monitor.cpu() - cpu
    total = float(data.compute()["rain"].sum())
    loaded, loaded_cpu = time.perf_counter() - began, monitor.cpu() - cpu
    monitor.stop.set()
    monitor.thread.join()
    if client is not None and cluster is not None:
        client.close()
        cluster.close()
    figures = {
        "open": opened,
        "open CPU": opened_cpu,
        "open+load": loaded,
        "open+load CPU": loaded_cpu,
        "start": started,
        "peak MB": monitor.peak / 1e6,
        "sum": total,
    }
    print(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("FORM", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        import zarr_many  # not __main__, so that workers can import the file system

        zarr_many.run(*arguments.one)
        return
    with tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        write(Path(folder), arguments.stores)
        commands = {name: [sys.argv[0], "--one", name, folder] for name in FORMS}
        results = run_alternately(commands, arguments.rounds)
    sums = {round(value, 3) for figures in results.values() for value in figures.pop("sum")}
    assert len(sums) == 1, f"the results of the forms differ: {sums}"
    print_medians(results, arguments.stores)


def print_medians(results: dict[str, dict[str, list[float]]], stores: int) -> None:
    columns = list(next(iter(results.values())))
    print(f"\n{stores} stores, 50 ms per read, medians; x: times faster than 'sequential, merge'")
    print(
        f"{'':36}" + "".join(f"{column:>15}" for column in columns) + f"{'x open':>9}{'x load':>9}"
    )
    base = results["sequential, merge"]
    for name, figures in results.items():
        row = "".join(f"{statistics.median(figures[column]):15.2f}" for column in columns)
        ratios = [
            statistics.median(a / b for a, b in zip(base[key], figures[key], strict=True))
            for key in ("open", "open+load")
        ]
        print(f"{name:36}{row}{ratios[0]:9.1f}{ratios[1]:9.1f}")


if __name__ == "__main__":
    main()
