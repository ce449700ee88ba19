"""``hyperplane size``."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import dask.config
import pandas as pd
import pytest
from terminal import Run

import hyperplane
from hyperplane.cli.size import size

CASES: list[tuple[list[str], dict[str, Any]]] = [
    (["100GB"], {}),
    (
        ["100GB", "--operation", "groupby", "--tasks", "heavy"],
        {"operation": "groupby", "tasks": "heavy"},
    ),
    (["100GB", "--basis=nominal"], {"basis": "nominal"}),
    (["2TB", "--operation=join"], {"operation": "join"}),
    (["100GB", "--pool", "DASK_POOL_96_768"], {"pool": "96_768"}),
    (["100GB", "--stays-put"], {"moves_data": False}),
    (["100GB", "--moves-data"], {"moves_data": True}),
    (["100GB", "--pieces", "4"], {"pieces": 4}),
]


@pytest.mark.parametrize(("arguments", "options"), CASES)
def test_json_is_the_advice_of_the_library(
    arguments: list[str], options: dict[str, Any], run: Run
) -> None:
    answer = run("size", *arguments, "--json")
    assert answer.code == 0
    assert answer.json == hyperplane.size_cluster(arguments[0], **options).to_dict()


def test_the_defaults_are_those_of_the_library() -> None:
    ours, theirs = (
        inspect.signature(function).parameters for function in (size, hyperplane.size_cluster)
    )
    # A command has no collection that could be measured.
    shared = [name for name in theirs if name not in ("data", "rules")]
    assert {name: ours[name].default for name in shared} == {
        name: theirs[name].default for name in shared
    }
    assert set(ours) == {*theirs, "plot", "as_json"} - {"rules"}


@pytest.mark.parametrize("number", ["100", "0.5", "1e3"])
def test_a_number_without_unit_is_gigabytes(number: str, run: Run) -> None:
    answer = run("size", number, "--json")
    assert answer.json["data_gb"] == float(number)
    assert answer.json == hyperplane.size_cluster(float(number)).to_dict()


def test_files_are_measured(run: Run, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": range(100_000), "y": 1.5})
    frame.to_parquet(tmp_path / "data.parquet")
    answer = run("size", str(tmp_path / "data.parquet"), "--json")
    assert answer.json == hyperplane.size_cluster(tmp_path / "data.parquet").to_dict()
    assert answer.json["data_gb"] == pytest.approx(frame.memory_usage().sum() / 1e9, rel=0.5)


def test_the_table_has_all_of_the_advice_within_80_columns(run: Run) -> None:
    advice = hyperplane.size_cluster("100GB", "groupby", tasks="heavy")
    answer = run("size", "100GB", "--operation=groupby", "--tasks=heavy")
    for label, text in advice.rows():
        if label != "instead":
            assert " ".join(text.split()) in answer.text
    assert answer.out.count("why ") == 1
    assert advice.comfortable > advice.nodes
    lines = answer.out.splitlines()
    for other in advice.alternatives:
        row = next(line.split() for line in lines if line.split()[:1] == [other.pool.name])
        assert row[1] == str(other.nodes)
        assert row[3] == str(other.total_threads)
    assert max(map(len, lines)) <= 80
    assert "…" not in answer.out


def test_alternatives_show_prices_if_a_pool_has_one(run: Run) -> None:
    with dask.config.set({"hyperplane.pools.pool_16_16.price_per_hour": 0.5}):
        out = run("size", "100GB").out
        nodes = next(
            option.nodes
            for option in hyperplane.size_cluster("100GB").alternatives
            if option.pool.name == "16_16"
        )
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["16_16"])
    assert float(row[-1]) == nodes * 0.5


def test_all_faults_are_reported_together(run: Run) -> None:
    answer = run(
        *("size", "nowhere/*.csv", "--operation=grupby", "--tasks=many", "--basis=guess"),
        *("--pool=16_17", "--pieces=0"),
    )
    assert answer.code == 2
    assert answer.out == ""
    for where in ("data", "operation", "tasks", "basis", "pool", "pieces"):
        assert f" {where} = " in answer.err
    assert "did you mean groupby" in answer.err


def test_plot_saves_an_image_in_addition_to_the_advice(run: Run, tmp_path: Path) -> None:
    from matplotlib import pyplot

    open_before = pyplot.get_fignums()  # of other tests of this process
    file = tmp_path / "advice.png"
    answer = run("size", "100GB", "--plot", str(file), "--json")
    assert answer.code == 0
    assert answer.json["nodes"] == 8
    assert file.read_bytes().startswith(b"\x89PNG\r\n")
    assert pyplot.get_fignums() == open_before


@pytest.mark.parametrize("name", ["advice.doc", "no/such/folder/advice.png"])
def test_an_image_that_cannot_be_saved_is_an_invalid_request(
    name: str, run: Run, tmp_path: Path
) -> None:
    answer = run("size", "100GB", "--plot", str(tmp_path / name))
    assert answer.code == 2
    assert answer.out == ""
    assert f"plot = {tmp_path / name}" in answer.err


def test_without_matplotlib_the_error_names_the_extra(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    answer = run("size", "100GB", "--plot", str(tmp_path / "advice.png"))
    assert answer.code == 1
    assert "pip install 'hyperplane[plot]'" in answer.err
