"""``hyperplane pools``: list the available kinds of node."""

from __future__ import annotations

from rich.table import Table

import hyperplane
from hyperplane.cli.output import JsonOption, new_table, show, write_json
from hyperplane.core.units import format_number
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec


def pools(as_json: JsonOption = False) -> None:
    """Show all pools: cores and memory of a node, and its proposed layout of processes."""
    layouts = [(pool, hyperplane.fit_workers(pool)) for pool in hyperplane.pools().values()]
    if as_json:
        write_json([{**pool.model_dump(), "worker": worker.to_dict()} for pool, worker in layouts])
    else:
        show(_table(layouts))


def _table(layouts: list[tuple[PoolSpec, WorkerSpec]]) -> Table:
    with_gpus = any(pool.gpus for pool, _ in layouts)
    with_price = any(pool.price_per_hour is not None for pool, _ in layouts)
    numbers = ("cores", "GB", *["GPUs"] * with_gpus, "layout", *["per\nhour"] * with_price)
    table = new_table(["pool", "alias"], numbers)
    table.caption = "\n".join(
        [
            "\nCores and GB: allocatable of nominal; sorted by allocatable GB.",
            "Layout: processes x threads x GB of each process.",
            *(f"{pool.name}: {pool.note}." for pool, _ in layouts if pool.note),
        ]
    )
    table.caption_justify = "left"
    for pool, worker in layouts:
        price = "" if pool.price_per_hour is None else format_number(pool.price_per_hour)
        table.add_row(
            pool.name,
            pool.alias,
            f"{format_number(pool.allocatable_cores)} of {format_number(pool.cores)}",
            f"{format_number(pool.allocatable_ram_gb)} of {format_number(pool.ram_gb)}",
            *[str(pool.gpus)] * with_gpus,
            f"{worker.nprocs} x {worker.nthreads} x {format_number(worker.ram_gb_per_proc)}",
            *[price] * with_price,
        )
    return table
