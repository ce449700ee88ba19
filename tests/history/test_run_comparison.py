"""Two runs beside each other."""

import json

import pytest
from html_pages import read_page

from hyperplane.errors import RequestError
from hyperplane.history import (
    ComputationUsage,
    PlanSummary,
    RunRecord,
    TaskUsage,
    WorkerUsage,
    compare_runs,
)
from hyperplane.history.comparison import compare_records
from hyperplane.history.run_record import new_run_name
from hyperplane.history.store import write_run

MB = 10**6


@pytest.fixture(autouse=True)
def records(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    written = []
    for number in (1, 2):
        record = RunRecord(
            name=new_run_name("flights", number),
            cluster="flights",
            started=number,
            ended=number + 30.0 * number,
            exit_reason="closed",
            plan=PlanSummary(engine="local", nodes=number, nprocs=1, nthreads=2),
            versions={"dask": f"2026.{number}.0", "pandas": "3.0"},
            workers=(WorkerUsage("0", peak=100 * MB * number, cpu_seconds=9.0),),
            tasks=(TaskUsage("sum", seconds=2.0 * number),) + (TaskUsage("new"),) * (number - 1),
            computations=(ComputationUsage("sum", input=10 * MB),),
        )
        written.append(write_run(record))
    return written


def test_figures_are_compared(records):
    found = compare_runs(records[0].name)
    values = {value.name: value for value in found.values}
    assert (found.first, found.second) == tuple(records)
    assert (values["peak"].first, values["peak"].ratio) == (100 * MB, 2)
    assert values["CPU"].ratio == 1
    assert values["time"].texts() == ("30 s", "60 s", "x 2.00")
    assert values["dask"].texts() == ("2026.1.0", "2026.2.0", "differs")
    assert "pandas" not in values
    assert values["tasks sum"].texts() == ("2 s", "4 s", "x 2.00")
    assert values["tasks new"].ratio is None
    assert values["input"].first == 10 * MB


def test_short_times_are_rounded(records):
    changed = {"started": 1.0, "ended": 1.0000026, "exit_reason": "done"}
    found = compare_records(records[0], records[1].model_copy(update=changed))
    values = {value.name: value for value in found.values}
    assert values["time"].texts() == ("30 s", "0 s", "x 0.00")


def test_it_prints_as_a_table_and_as_json(records):
    found = compare_runs(records[0].name, "latest")
    lines = [line.split() for line in str(found).splitlines()]
    assert ["peak", "100", "MB", "200", "MB", "x", "2.00"] in lines
    page = read_page(found._repr_html_())
    at = page.cells.index("peak")
    assert page.cells[at : at + 4] == ["peak", "100 MB", "200 MB", "x 2.00"]
    document = json.loads(found.to_json())
    assert document["second"] == records[1].name
    assert {"name": "nodes", "first": 1, "second": 2, "unit": "", "ratio": 2.0} in document[
        "values"
    ]


def test_steps_of_jobs_are_compared_without_figures_of_clusters(records):
    of_steps = {
        "cluster": "", "step": "load", "tasks": (), "computations": (),
        "plan": PlanSummary(engine="slurm", pool="16_32", nodes=1),
    }  # fmt: skip
    steps = [record.model_copy(update=of_steps) for record in records]
    names = [value.name for value in compare_records(*steps).values]
    assert names == [
        "run", "of", "ended", "engine", "pool", "time", "CPU", "peak", "read", "written", "dask"
    ]  # fmt: skip


def test_an_unknown_run_is_an_error():
    with pytest.raises(RequestError, match="hyperplane history list shows them"):
        compare_runs("flights", "weather")
