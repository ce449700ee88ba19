"""Pools, and a form of the sizing calculator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import hyperplane
from hyperplane import config
from hyperplane.calculator.advice import SizingAdvice
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.units import advise_on_size, format_bytes, format_number, parse_bytes
from hyperplane.sizing.recommend import PoolOption
from hyperplane.spec.pool import PoolSpec
from hyperplane.ui.elements import (
    make_alert,
    make_choice,
    make_facts,
    make_field,
    make_form,
    make_note,
    make_section,
    make_table,
)
from hyperplane.ui.view import PageRequest, View

_FORM = ("data", "operation", "tasks", "basis", "pool", "moves_data", "pieces")
#: Values of the choice whether rows move between workers.
_MOVES = {"": True, "yes": True, "no": False}


def list_pools(request: PageRequest) -> View:
    """Return all pools: cores and memory of a node, and its proposed layout of processes."""
    del request
    currency = config.sizing_rules().currency
    titles = ("pool", "alias", "cores", "nominal", "GB", "nominal", "GPUs", "layout", "per hour")
    rows = ([*_describe_pool(pool, currency)] for pool in hyperplane.pools().values())
    table = make_table("Kinds of node, by their memory for worker processes", titles, rows, 7)
    notes = [make_note(f"{each.name}: {each.note}.") for each in hyperplane.pools().values()
             if each.note]  # fmt: skip
    text = "Layout: processes x threads x GB of each process."
    return View("Pools", (table, make_note(text), *notes))


def _describe_pool(pool: PoolSpec, currency: str) -> Iterator[str]:
    worker = hyperplane.fit_workers(pool)
    yield pool.name
    yield pool.alias
    yield format_number(pool.allocatable_cores)
    yield format_number(pool.cores)
    yield format_number(pool.allocatable_ram_gb)
    yield format_number(pool.ram_gb)
    yield str(pool.gpus) if pool.gpus else ""
    yield f"{worker.nprocs} x {worker.nthreads} x {format_number(worker.ram_gb_per_proc)}"
    price = pool.price_per_hour
    yield "" if price is None else f"{format_number(price)} {currency}".rstrip()


def size_cluster(request: PageRequest) -> View:
    """Return the form, and the advice for the data that it has, or its faults."""
    given = {name: request.query.get(name, "").strip() for name in _FORM}
    pools = {"": "chosen by the rules", **{name: name for name in hyperplane.pools()}}
    form = make_form(
        "/size",
        "Size",
        make_field("data", "Data", given["data"], "uncompressed, such as 100GB"),
        make_field("operation", "Operation", given["operation"], "light, medium, heavy or groupby"),
        make_choice("tasks", "Tasks", given["tasks"], {"light": "light", "heavy": "heavy"}),
        make_choice(
            "basis", "Memory of a node", given["basis"],
            {"allocatable": "allocatable", "nominal": "nominal"},
        ),
        make_choice("pool", "Pool", given["pool"], pools),
        make_choice("moves_data", "Moves data", given["moves_data"], {"yes": "yes", "no": "no"}),
        make_field("pieces", "Pieces", given["pieces"], "number of jobs"),
    )  # fmt: skip
    if not any(given.values()):
        return View("Size a cluster", (form,))
    try:
        advice = _advise(given)
    except RequestError as error:
        alert = make_alert("The request has faults:", error.faults)
        return View("Size a cluster", (form, alert), code=400)
    rows = [row for row in advice.rows() if row[0] != "instead"]
    return View(
        "Size a cluster",
        (
            form,
            make_section("advice", "Advice", make_facts(rows)),
            make_section("others", "The same on other pools", _list_options(advice)),
        ),
    )


def _advise(given: dict[str, str]) -> SizingAdvice:
    faults = []
    try:
        parse_bytes(given["data"])
    except (RequestError, ValueError):
        # Not a path or an address: a page must not make this process read files.
        advice = advise_on_size(given["data"]) or "measure files with hyperplane size"
        allowed = "a size such as 100GB, or a number of GB"
        faults.append(Fault("data", repr(given["data"])[:80], allowed, advice))
    data: Any = given["data"]
    moves: Any = given["moves_data"]
    pieces: Any = given["pieces"] or None
    if isinstance(pieces, str) and pieces.isascii() and pieces.isdecimal() and len(pieces) < 16:
        pieces = int(pieces)
    try:
        found = hyperplane.size_cluster(
            "1GB" if faults else data,
            given["operation"] or None,
            cast(Any, given["tasks"] or "light"),
            basis=cast(Any, given["basis"] or "allocatable"),
            pool=given["pool"] or None,
            moves_data=cast(Any, _MOVES.get(moves, moves)),
            pieces=pieces,
        )
    except RequestError as error:
        check([*faults, *error.faults])
        raise
    check(faults)
    return cast(SizingAdvice, found)


def _list_options(advice: SizingAdvice) -> str:
    titles = ("pool", "nodes", "processes", "threads", "memory", "per hour")
    return make_table(
        "Nodes of other pools with the memory that is needed",
        titles,
        ([*_describe_option(option)] for option in advice.alternatives),
        numbers=5,
    )


def _describe_option(option: PoolOption) -> Iterator[str]:
    yield option.pool.name
    yield f"{option.nodes:,}"
    yield f"{option.nodes * option.worker.nprocs:,}"
    yield f"{option.total_threads:,}"
    yield format_bytes(option.total_ram)
    cost = option.cost_per_hour
    yield "" if cost is None else format_number(cost)
