"""Run TPC-H queries with one engine in one process; the last line is JSON with the figures."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

Query = Callable[[str], Any]
#: Query that runs once before the measurement, so that workers import their modules.
WARM_UP = "q6"


def _process_tree() -> list[psutil.Process]:
    process = psutil.Process()
    return [process, *process.children(recursive=True)]


def tree_cpu() -> float:
    """Return user and system CPU seconds of this process and its running descendants."""
    total = 0.0
    for process in _process_tree():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def _anonymous_memory() -> int:
    """Return the bytes of anonymous memory of the process tree."""
    total = 0
    for process in _process_tree():
        try:
            with Path(f"/proc/{process.pid}/status").open() as status:
                total += sum(int(s.split()[1]) for s in status if s.startswith("RssAnon")) * 1024
        except OSError:
            continue
    return total


@contextmanager
def peak_memory(peak: list[int]) -> Iterator[None]:
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(0.1):
            peak[0] = max(peak[0], _anonymous_memory())

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _dask(folder: str) -> Query:
    from queries import QUERIES, Tables

    return lambda name: QUERIES[name](Tables(folder))


def default(folder: str, stack: ExitStack, options: dict[str, Any]) -> Query:
    """Run plain Dask code on a default LocalCluster."""
    from distributed import Client, LocalCluster

    cluster = stack.enter_context(LocalCluster(**options))
    stack.enter_context(Client(cluster))
    return _dask(folder)


def ours(folder: str, stack: ExitStack, options: dict[str, Any]) -> Query:
    """Run the same code on hyperplane's cluster."""
    import dask.config
    import distributed  # noqa: F401 - sets its defaults before the block, which restores them

    import hyperplane

    with dask.config.set(options.pop("config", {})):
        plan = hyperplane.plan_cluster(**options)
        client, cluster = hyperplane.start(plan)
    stack.enter_context(cluster)
    stack.enter_context(client)
    return _dask(folder)


def polars(folder: str, stack: ExitStack, options: dict[str, Any]) -> Query:
    import polars as pl
    from peers import POLARS

    def run(name: str) -> Any:
        lazy = POLARS[name](lambda table: pl.scan_parquet(f"{folder}/{table}/*.parquet"))
        return lazy.collect(engine="streaming").to_pandas()

    return run


def duckdb(folder: str, stack: ExitStack, options: dict[str, Any]) -> Query:
    import duckdb as db
    from data import TABLES
    from peers import SQL

    connection = stack.enter_context(db.connect())
    for table in TABLES:
        connection.execute(f"create view {table} as from '{folder}/{table}/*.parquet'")
    return lambda name: connection.execute(SQL[name]).df()


ENGINES = {"default": default, "ours": ours, "polars": polars, "duckdb": duckdb}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--queries", nargs="+", required=True)
    parser.add_argument("--options", default="{}", help="arguments of the cluster, as JSON")
    parser.add_argument("--answers", default="", help="a folder to write the answers to")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    with ExitStack() as stack:
        began = time.perf_counter()
        run = ENGINES[arguments.engine](arguments.folder, stack, json.loads(arguments.options))
        run(WARM_UP)
        figures["start wall"] = time.perf_counter() - began
        figures["start cpu"] = tree_cpu()
        for name in arguments.queries:
            time.sleep(0.3)  # lets the cleanup of the previous query finish
            peak = [_anonymous_memory()]
            with peak_memory(peak):
                cpu, wall = tree_cpu(), time.perf_counter()
                answer = run(name)
                figures[f"{name} wall"] = time.perf_counter() - wall
                figures[f"{name} cpu"] = tree_cpu() - cpu
            figures[f"{name} peak"] = peak[0] / 1e6
            if arguments.answers:
                answer.to_parquet(f"{arguments.answers}/{arguments.engine}-{name}.parquet")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
