"""``hyperplane pools``."""

from __future__ import annotations

import dask.config
from terminal import Run

import hyperplane


def test_a_line_for_each_pool_with_its_numbers_and_layout(run: Run) -> None:
    answer = run("pools")
    assert answer.code == 0
    lines = {line.split()[0]: line.split() for line in answer.out.splitlines() if line.strip()}
    assert " ".join(lines["16_16"]) == "16_16 hyperplane-med 15 of 16 12 of 16 5 x 3 x 2.4"
    assert " ".join(lines["96_768"]).startswith(
        "96_768 hyperplane-xxl-high-mem 94 of 96 675 of 768"
    )
    assert set(hyperplane.pools()) <= set(lines)


def test_pools_are_sorted_by_allocatable_memory_with_gpus_last(run: Run) -> None:
    assert [pool["name"] for pool in run("pools", "--json").json] == list(hyperplane.pools())
    with dask.config.set({"hyperplane.pools.pool_8_8.gpus": 1}):
        assert list(hyperplane.pools())[-1] == "8_8"


def test_the_note_of_a_pool_is_below_the_table(run: Run) -> None:
    out = " ".join(run("pools").out.split())
    assert "4_32: 7 of 32 GB is the published figure and looks like an error;" in out
    with dask.config.set({"hyperplane.pools.pool_4_32.note": ""}):
        assert "4_32:" not in run("pools").out


def test_the_table_fits_80_columns_without_trailing_spaces(run: Run) -> None:
    lines = run("pools").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines == [line.rstrip() for line in lines]


def test_json_equals_the_result_of_the_library(run: Run) -> None:
    assert run("pools", "--json").json == [
        {**pool.model_dump(), "worker": hyperplane.fit_workers(pool).to_dict()}
        for pool in hyperplane.pools().values()
    ]


def test_prices_are_shown_if_a_pool_has_one(run: Run) -> None:
    assert "hour" not in run("pools").out
    with dask.config.set({"hyperplane.pools.pool_16_16.price_per_hour": 0.5804}):
        lines = run("pools").out.splitlines()
    assert any(line.endswith(" hour") for line in lines)
    assert next(line for line in lines if "hyperplane-med " in line).endswith(" 0.5804")
    assert any(line.split()[:2] == ["8_64", "hyperplane-small-high-mem"] for line in lines)
    assert max(map(len, lines)) <= 80


def test_gpus_are_shown_if_a_pool_has_some(run: Run) -> None:
    assert "GPUs" not in run("pools").out
    with dask.config.set({"hyperplane.pools.pool_8_8.gpus": 4}):
        lines = run("pools").out.splitlines()
    assert "GPUs" in lines[0]
    assert " 4 " in next(line for line in lines if "hyperplane-small " in line)


def test_long_pool_names_are_not_truncated(run: Run) -> None:
    ours = {
        "alias": "the-large-nodes-of-the-third-floor[bold]",
        "cores": 64,
        "ram_gb": 256,
        "allocatable_cores": 62,
        "allocatable_ram_gb": 240,
    }
    with dask.config.set({"hyperplane.pools.pool_64_256": ours}):
        out = run("pools").out
    assert "…" not in out
    line = next(number for number, line in enumerate(out.splitlines()) if "64_256" in line)
    column = out.splitlines()[line].index("the-large")
    parts = [text[column:].split("  ")[0] for text in out.splitlines()[line : line + 2]]
    assert "".join(parts) == ours["alias"]
