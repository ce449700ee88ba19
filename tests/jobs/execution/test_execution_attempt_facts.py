"""Code, price and versions of an attempt, and what its record has of them."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import dask.config
import pytest
from job_cases import bash

from hyperplane.core.errors import ConfigError
from hyperplane.jobs import Pipeline, Step, list_step_runs, submit
from hyperplane.jobs.execution.attempt_facts import (
    AttemptFacts,
    digest_step,
    read_facts,
    read_versions,
    write_facts,
)
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.run_recording import StepRunRecorder
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.runners.container_budget import Price
from hyperplane.jobs.runners.local import LocalRunner
from hyperplane.jobs.runners.slurm.runner import SlurmRunner
from hyperplane.jobs.store.job_records import DONE, FAILED, Attempt
from hyperplane.jobs.store.jobs_home import open_store


@pytest.fixture
def store(tmp_path):
    with dask.config.set({"hyperplane.jobs.home": str(tmp_path / "jobs")}):
        store = open_store()
        yield store
        store.close()


class Priced:
    """A runner of containers with a price that grows with their memory."""

    image = "registry/steps:7"

    def __init__(self, price: Price | Exception) -> None:
        self.price, self.asked = price, []

    def hourly_price(self, step: Step, memory_factor: float) -> Price:
        self.asked.append((step.resources.pool, memory_factor))
        if isinstance(self.price, Exception):
            raise self.price
        return self.price


def make_command(folder: Path, script: Path | None = None, pool: str = "") -> AttemptCommand:
    return AttemptCommand((), {}, "", folder / "attempt-1", script=script, pool=pool)


def test_the_digest_is_that_of_the_program(tmp_path):
    script = tmp_path / "a.py"
    script.write_text("print(1)")
    step = Step(name="a", kind="python", path="a.py")
    command = make_command(tmp_path, script)
    first = digest_step(step, command)
    assert len(first) == 64
    script.touch()
    assert digest_step(step.model_copy(update={"retries": 3}), command) == first
    script.write_text("print(2)")
    assert digest_step(step, command) != first
    script.unlink()
    assert digest_step(step, command) == ""
    words = [digest_step(bash("a", text), make_command(tmp_path)) for text in ("x y", "x  y")]
    assert words[0] != words[1]


def test_outputs_of_a_notebook_are_no_code(tmp_path):
    file = tmp_path / "a.ipynb"
    step, command = Step(name="a", kind="notebook", path="a.ipynb"), make_command(tmp_path, file)
    digests = []
    for source, outputs, count in (("1 + 1", [], None), (["1 +", " 1"], [{}], 7), ("1 + 2", [], 1)):
        cell = {"cell_type": "code", "source": source, "outputs": outputs, "execution_count": count}
        file.write_text(json.dumps({"cells": [cell]}))
        digests.append(digest_step(step, command))
    assert digests[0] == digests[1] != digests[2]
    file.write_text("no notebook")
    assert digest_step(step, command)


def test_facts_are_written_before_the_start(tmp_path):
    runner = Priced(Price(0.5, "USD", "a list"))
    command = make_command(tmp_path, pool="16_16")
    write_facts(runner, bash("a", "true"), command, 1.5)
    found = read_facts(command)
    assert (found.price, found.currency) == (0.5, "USD")
    assert found.versions == {"image": "registry/steps:7"}
    assert runner.asked == [("16_16", 1.5)]
    for runner in (
        Priced(Price(None, "", "unknown")),
        Priced(ConfigError([])),
        LocalRunner({}, {}),
    ):
        write_facts(runner, bash("a", "true"), command, 1)
        assert (read_facts(command).price, read_facts(command).currency) == (None, "")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"code": 3}', '{"price": -1}', '{"price": "x"}', '{"versions": {"a": 1}}',
     '{"other": 1}', '{"price": NaN}'],
)  # fmt: skip
def test_a_damaged_file_has_no_facts(tmp_path, text):
    command = make_command(tmp_path)
    assert read_facts(command) == AttemptFacts()
    command.file(".facts").write_text(text)
    assert read_facts(command) == AttemptFacts()


def test_versions_are_read_from_the_files_of_an_environment(tmp_path):
    (tmp_path / "pyvenv.cfg").write_text("home = /usr\nversion = 3.12.4\n")
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    for name, version in (("pandas", "2.2.0"), ("unrelated", "1")):
        folder = packages / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    assert read_versions(str(tmp_path / "bin" / "python")) == {
        "python": "3.12.4",
        "pandas": "2.2.0",
    }
    assert read_versions("/usr/bin/no-python") == {}


def test_a_node_of_a_queue_has_the_price_of_its_pool(store, tmp_path):
    with dask.config.set({"hyperplane.pools.pool_16_16.price_per_hour": 2.0}):
        command = make_command(tmp_path, pool="16_16")
        write_facts(SlurmRunner({}, {}), bash("a", "true"), command, 1)
        assert read_facts(command).price == 2.0
        write_facts(LocalRunner({}, {}), bash("a", "true"), command, 1)
        assert read_facts(command).price is None


def record(store, job, step, command, **fields):
    recorder = StepRunRecorder(store, job, ["hunter2hunter2"])
    recorder.record(step, Attempt(job.id, step.name, -1, 1, **fields), command, "paid")
    return recorder


def test_a_record_has_parameters_code_and_cost(store, tmp_path):
    parameters = {
        "day": "2026-11-27", "db_password": "x", "source": "s3://me:key@bucket/a",
        "text": "with hunter2hunter2 in it",
    }  # fmt: skip
    step = bash("fit", "true", gang=2)
    job = new_job(Pipeline.from_steps("nightly", [step]), parameters=parameters)
    store.add(job)
    job = store.get(job.id)
    command = make_command(tmp_path)
    write_facts(Priced(Price(0.5, "EUR", "a list")), step, command, 1)
    command.file(".pid").write_text("1")
    os.utime(command.file(".pid"), (1000, 1000))
    # It waited in a queue until 1000, and ran for half of an hour on two nodes.
    recorder = record(store, job, step, command, status=FAILED, started=10, ended=2800)
    (found,) = store.runs(job.machine, job_id=job.id)
    assert found.run == "nightly #1"
    assert found.parameters == {
        "day": "2026-11-27", "db_password": "******", "source": "s3://bucket/a",
        "text": "with ************** in it",
    }  # fmt: skip
    assert found.code == digest_step(step, command)
    assert (found.cost, found.currency) == (pytest.approx(0.5), "EUR")
    second = replace(command, attempt_prefix=tmp_path / "attempt-2")
    second.file(".facts").write_text(command.file(".facts").read_text())
    again = Attempt(job.id, "fit", -1, 2, DONE, started=3000, ended=3000 + 3600)
    recorder.record(step, again, second, "paid")
    assert store.runs(job.machine, job_id=job.id)[0].cost == pytest.approx(1.5)
    unknown = replace(command, attempt_prefix=tmp_path / "attempt-3")
    recorder.record(step, replace(again, number=3), unknown, "paid")
    (found,) = store.runs(job.machine, job_id=job.id)
    assert (found.cost, found.currency) == (None, "")
    assert store.runs(job.machine, job_id="another") == []


@pytest.mark.process
def test_a_step_is_recorded_with_what_it_reads_and_writes(store, tmp_path, monkeypatch):
    monkeypatch.setenv("DASK_HYPERPLANE__JOBS__HOME", str(tmp_path / "jobs"))
    text = "from pathlib import Path\ndata = Path('in').read_bytes()\nPath('out').write_bytes(data)"
    (tmp_path / "copy.py").write_text(text)
    (tmp_path / "in").write_bytes(bytes(3_000_000))
    step = Step(name="copy", kind="python", path="copy.py")
    with dask.config.set({"hyperplane.jobs.linger": "0.5s"}):
        job = submit(Pipeline.from_steps("bytes", [step], root=str(tmp_path)))
        assert job.wait(170) == "done"
    (found,) = list_step_runs("bytes")
    assert 3_000_000 <= found.read < 30_000_000  # with the modules of the interpreter
    assert 3_000_000 <= found.written < 4_000_000
    assert found.code
    if sys.prefix != sys.base_prefix:
        assert found.versions["python"].startswith("3.")
        assert "pandas" in found.versions
    assert found.cost is None
