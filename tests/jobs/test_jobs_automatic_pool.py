"""Steps whose pool is chosen by their earlier runs."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import dask
import pytest
from job_cases import bash, run_job

from hyperplane import config
from hyperplane.errors import RequestError
from hyperplane.history import RunRecord
from hyperplane.jobs import Pipeline, Step, list_step_runs, submit
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.cluster_arguments import CLUSTER
from hyperplane.jobs.execution.failure_kinds import MEMORY
from hyperplane.jobs.execution.run_recording import StepRunRecorder, read_usage
from hyperplane.jobs.execution.step_sizes import StepSizes
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.runners.kubernetes.attempt_manifests import _format_quantities
from hyperplane.jobs.runners.slurm.submit import batch_resources
from hyperplane.jobs.store.job_records import DONE, FAILED, Attempt
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.jobs.store.tables import CLUSTERS, STEPS
from hyperplane.jobs.submission.submission_snapshot import load_snapshot, save_snapshot

GB = 10**9
#: A program that holds 300 MB, and is killed by the system at the first attempt.
HOLDS_MEMORY = f"""{sys.executable} -c '
import time; block = bytearray(300_000_000); time.sleep(2.5)'
[ -e {{mark}} ] && exit 0; touch {{mark}}; kill -9 $$"""
#: A program whose task needs more memory than its cluster has at the first attempt.
GROWS = """
import time
import hyperplane

def allocate(size):
    block = bytearray(size)
    time.sleep(2)
    return len(block)

if __name__ == "__main__":
    client, cluster = hyperplane.initialize_cluster()
    try:
        print(client.submit(allocate, 450_000_000, key="allocate-1").result())
    finally:
        client.close()
        cluster.close()
"""


def log_of(job, number, step=0):
    folder = next(Path(open_store().get(job.id).folder, "steps").glob(f"{step:03d}-*"))
    return (folder / f"attempt-{number}.log").read_text()


def attempts_of(job):
    return [(each.status, each.fault) for each in open_store().attempts(job.id)]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.usefixtures("published_pools")
def test_a_step_that_was_killed_for_memory_gets_a_larger_pool(tmp_path):
    script = HOLDS_MEMORY.replace("{mark}", str(tmp_path / "mark"))
    step = bash("hold", script, resources={"pool": "auto"}, retries=1)
    job = run_job(step)
    assert job.status == DONE
    assert attempts_of(job) == [(FAILED, MEMORY), (DONE, "")]
    assert log_of(job, 1).startswith(
        "resources.pool: auto is 16_16: no run of this step is recorded: "
        "hyperplane.jobs.default_pool\n"
    )
    first, second = (line.split()[3] for line in map(log_of, [job] * 2, [1, 2]))
    pools = config.pools()
    larger = pools[second.rstrip(":")].allocatable_ram_gb
    assert larger > pools[first.rstrip(":")].allocatable_ram_gb
    assert "out of memory with 12 GB" in log_of(job, 2)
    record = list_step_runs("test", step="hold")[0]
    assert (record.exit_reason, record.job, record.label) == (DONE, job.id, "test/hold")
    died, enough = record.workers
    assert (died.name, died.limit, died.causes) == ("16_16", 12 * GB, {"out of memory": 1})
    assert 300e6 < enough.peak < 600e6
    assert enough.cpu_seconds > 0


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.cluster
def test_a_cluster_whose_worker_was_killed_gets_more_memory(tmp_path):
    (tmp_path / "grows.py").write_text(GROWS)
    cluster = {
        "pool": "auto", "num_workers": 1, "nprocs": 1, "nthreads": 1, "cores_per_worker": 1,
        "ram_gb_per_proc": 0.5, "engine": "local", "local_fit": "exact", "oom": "raise",
    }  # fmt: skip
    step = Step(name="grow", kind="python", path="grows.py", cluster=cluster, retries=2)
    job = submit(Pipeline.from_steps("grows", [step], root=tmp_path))
    assert job.wait(170) == DONE
    statuses = attempts_of(job)
    assert statuses[0] == (FAILED, MEMORY)
    assert statuses[-1] == (DONE, "")
    assert "ram_gb_per_proc 0.5: no run of its clusters is recorded" in log_of(job, 1)
    # On a slow machine the worker is also paused, or spills.
    assert re.search(
        r"of 0\.5 GB per process, (.*, )?1 restart for lack of memory: ", log_of(job, 1)
    )
    assert "out of memory with 500 MB" in log_of(job, 2)
    clusters = [record for record in list_step_runs("grows") if record.cluster]
    assert len(clusters) == len(statuses)
    assert clusters[-1].killed == 1
    assert clusters[-1].peak.peak > 450_000_000
    assert clusters[0].killed == 0
    assert clusters[0].plan.ram_per_proc >= 750_000_000
    assert clusters[0].computations[0].peak > 450_000_000
    assert not list(Path(open_store().get(job.id).folder).rglob("*.runs"))


@pytest.fixture
def job(tmp_path):
    """A job that is not run, with its snapshot."""
    step = bash("fit", "true", resources={"pool": "auto"}, cluster={"pool": "auto", "nprocs": 2})
    made = new_job(Pipeline.from_steps("nightly", [step], root=tmp_path))
    save_snapshot(made, {}, {})
    return made


@pytest.fixture
def store(tmp_path):
    opened = JobStore(f"sqlite:///{tmp_path}/jobs.db")
    yield opened
    opened.close()


@pytest.mark.usefixtures("published_pools")
def test_every_runner_gets_the_sizes_of_the_chosen_pool(job, store, tmp_path):
    sizes = StepSizes(store, job, load_snapshot(job))
    (step,) = job.pipeline.steps
    first = sizes.add(step)
    assert (sizes.pool_of(first), first.resources.ram_gb) == ("16_16", 12)
    assert batch_resources(first).memory == 12 * GB
    assert _format_quantities(first, 1.0)["memory"] == str(12 * GB)
    assert first.cluster["ram_gb_per_proc"] == 6
    command = AttemptCommand((), {}, "", tmp_path / "attempt-1")
    killed = Attempt(job.id, "fit", -1, 1, FAILED, started=5, ended=9, fault=MEMORY)
    sizes.record(first, killed, command)
    second = sizes.resize(step)
    assert batch_resources(second).memory > 12 * GB
    assert sizes.pool_of(second) not in ("", "16_16")
    assert second.cluster["ram_gb_per_proc"] == 10  # of the 6 GB with which it ended
    assert any("out of memory with 6 GB" in reason for reason in sizes.reasons("fit"))
    # The supervisor is killed, and another one continues the job.
    again = StepSizes(store, job, load_snapshot(job)).add(step)
    assert again == second


def test_pools_of_the_same_sizes_are_those_that_the_steps_name(store, tmp_path):
    cpu = {"cores": 8, "ram_gb": 64, "allocatable_cores": 8, "allocatable_ram_gb": 60}
    steps = [
        bash(name, "true", resources={"pool": pool})
        for name, pool in (("a", "gpu"), ("b", "same"), ("c", "cpu"), ("d", "auto"))
    ]
    with dask.config.set(
        {
            "hyperplane.pools": {"cpu": cpu, "gpu": {**cpu, "gpus": 1}, "same": cpu},
            "hyperplane.jobs.default_pool": "same",
        }
    ):
        made = new_job(Pipeline.from_steps("nightly", steps, root=tmp_path))
        save_snapshot(made, {}, {})
        sizes = StepSizes(store, made, load_snapshot(made))
        sized = [sizes.add(step) for step in steps]
    assert [sizes.pool_of(step) for step in sized] == ["gpu", "same", "cpu", "same"]
    assert sizes.pool_of(sizes.add(bash("e", "true", resources={"cores": 8}))) == ""


@pytest.mark.usefixtures("published_pools")
def test_sizes_that_earlier_runs_choose_grow_once_after_a_lack_of_memory(job, store, tmp_path):
    (step,) = job.pipeline.steps
    step = step.model_copy(update={"more_memory": 2.0, "retries": 1})
    sizes = StepSizes(store, job, load_snapshot(job))
    sizes.add(step)
    command = AttemptCommand((), {}, "", tmp_path / "attempt-1")
    killed = Attempt(job.id, "fit", -1, 1, FAILED, started=5, ended=9, fault=MEMORY)
    sizes.record(sizes.resize(step), killed, command)
    second = sizes.resize(step)
    variable = json.loads(sizes.cluster_variable(second, 1)[CLUSTER])
    assert variable["ram_gb_per_proc"] == second.cluster["ram_gb_per_proc"] == 10
    assert sizes.memory_factor(second, 1) == 1
    given = bash(
        "b", "true", resources={"ram_gb": 2}, more_memory=2, cluster={"ram_gb_per_proc": 1}
    )
    assert sizes.memory_factor(given, 1) == 2
    assert json.loads(sizes.cluster_variable(given, 1)[CLUSTER])["ram_gb_per_proc"] == 2


def test_the_usage_of_a_step_is_read(tmp_path):
    command = AttemptCommand((), {}, "", tmp_path / "attempt-1")
    assert read_usage(command) == (0, 0.0, 0.0, 0, 0)
    command.file(".usage").write_text("5000 1.500 0.700 12 34")
    assert read_usage(command) == (5000, 1.5, 0.7, 12, 34)
    command.file(".usage").write_text("5000 1.500 0.700")  # that of an earlier version
    assert read_usage(command) == (5000, 1.5, 0.7, 0, 0)
    for damaged in ("damaged", "1 2 3 4 5 6", "1 2 3 x"):
        command.file(".usage").write_text(damaged)
        assert read_usage(command) == (0, 0.0, 0.0, 0, 0)


@pytest.mark.parametrize(("runner", "peak"), [("local", 2000), ("slurm", 0)])
def test_the_figures_of_a_gang_are_those_of_one_process(job, store, tmp_path, runner, peak):
    command = AttemptCommand((), {}, "", tmp_path / "attempt-1")
    command.file(".usage").write_text("8000 4.0 6.0")
    step = bash("fit", "true", gang=4)
    done = Attempt(job.id, "fit", -1, 1, DONE, started=1, ended=2)
    StepRunRecorder(store, replace(job, runner=runner)).record(step, done, command, "")
    (record,) = store.runs(job.machine)
    assert (record.workers[0].peak, record.plan.engine) == (peak, runner)


def test_records_of_chunks_are_one(job, store, tmp_path, monkeypatch):
    step = bash("fit", "true", chunks=1000)
    recorder, saved = StepRunRecorder(store, job), []
    monkeypatch.setattr(store, "save_run", lambda record, machine: saved.append(record))
    for chunk in range(300):
        command = AttemptCommand((), {}, "", tmp_path / f"attempt-{chunk}")
        command.file(".usage").write_text(f"{1000 + chunk % 7} 1.0 1.0")
        recorder.record(step, Attempt(job.id, "fit", chunk, 1, DONE, started=1), command, "")
    assert len(saved) < 10
    assert saved[-1].workers[0].peak >= 1000
    assert {record.name for record in saved} == {saved[0].name}


def test_what_a_step_writes_among_the_records_is_harmless(job, store, tmp_path):
    command = AttemptCommand((), {}, "", tmp_path / "attempt-1")
    folder = command.file(".runs")
    folder.mkdir()
    (folder / "bad.json").write_text("{")
    (folder / "good.json").write_text(
        RunRecord(name="r", cluster="c", started=1, ended=2, pipeline="another").to_json()
    )
    (folder / "link.json").symlink_to("/etc/passwd")
    (folder / "nested.json").write_text("[" * 100_000)
    os.mkfifo(folder / "pipe.json")
    without = RunRecord(name="s", cluster="", started=1, ended=2)
    (folder / "step.json").write_text(without.to_json())
    (folder / "large.json").write_text(
        without.model_copy(update={"cluster": "large"}).to_json() + " " * 10_000_000
    )
    step = bash("fit", "true")
    done = Attempt(job.id, "fit", -1, 1, DONE, started=1, ended=2)
    StepRunRecorder(store, job).record(step, done, command, "")
    found = store.runs(job.machine, pipeline="nightly", step="fit")
    assert sorted(record.cluster for record in found) == ["", "c"]
    assert not folder.exists()


@pytest.mark.parametrize("names", [("load a", "load-a"), ("x" * 110 + "1", "x" * 110 + "2")])
def test_steps_that_start_in_the_same_second_have_separate_records(job, store, tmp_path, names):
    recorder = StepRunRecorder(store, job)
    for name in names:
        step = bash(name, "true", cluster={"ram_gb_per_proc": 1})
        command = AttemptCommand((), {}, "", tmp_path / "attempt-1")
        killed = Attempt(job.id, name, -1, 1, FAILED, started=1, ended=2, fault=MEMORY)
        recorder.record(step, killed, command, "")
    for kind in (STEPS, CLUSTERS):
        assert sorted(each.step for each in store.runs(job.machine, kind=kind)) == sorted(names)


def test_records_of_clusters_leave_that_of_their_step_in_the_store(store):
    names = {"job": "j", "pipeline": "p", "step": "a"}
    of_step = RunRecord(name="step", cluster="", started=1, ended=99, **names)
    store.save_run(of_step, "ada@host")
    for number in range(60):
        cluster = RunRecord(
            name=f"c{number:03d}", cluster="c", started=2 + number, ended=99, **names
        )
        store.save_run(cluster, "ada@host")
    asked = {"pipeline": "p", "step": "a"}
    assert store.runs("ada@host", **asked, kind=STEPS, limit=30) == [of_step]
    of_clusters = store.runs("ada@host", **asked, kind=CLUSTERS)
    assert [each.started for each in of_clusters] == list(range(61, 11, -1))
    assert store.runs("ada@host", **asked) == [*of_clusters, of_step]
    assert store.runs("ada@host", **asked, limit=2) == of_clusters[:2]


def test_the_store_keeps_the_newest_runs_of_each_step(store):
    def new(number, step="a"):
        name = f"r{number:03d}"
        return RunRecord(
            name=name, cluster="", started=number, ended=number, job="j", pipeline="p", step=step
        )

    for number in range(60):
        store.save_run(new(number), "ada@host")
    store.save_run(new(1, "b"), "ada@host")
    store.save_run(new(99), "bob@host")
    kept = store.runs("ada@host", pipeline="p", step="a")
    assert [record.started for record in kept] == list(range(59, 9, -1))
    assert len(store.runs("ada@host")) == 51
    changed = new(59).model_copy(update={"exit_reason": "done"})
    store.save_run(changed, "ada@host")
    assert store.runs("ada@host", pipeline="p", step="a", limit=1) == [changed]


def test_damaged_records_of_the_store_are_left_out(store, tmp_path, caplog):
    record = RunRecord(name="good", cluster="", started=1, ended=2, job="j", pipeline="p", step="a")
    store.save_run(record, "ada@host")
    store.save_run(record.model_copy(update={"name": "bad"}), "ada@host")
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("UPDATE hyperplane_runs SET document = '{' WHERE name = 'bad'")
    assert store.runs("ada@host") == [record]
    assert "bad of the job store is left out" in caplog.text


def test_a_store_of_an_earlier_version_gets_the_table(tmp_path):
    JobStore(f"sqlite:///{tmp_path}/jobs.db").close()
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("DROP TABLE hyperplane_runs")
        connection.execute("DROP TABLE hyperplane_cluster_runs")
    opened = JobStore(f"sqlite:///{tmp_path}/jobs.db")
    assert opened.runs("ada@host") == []
    opened.close()


@pytest.mark.usefixtures("published_pools")
def test_rendered_jobs_have_the_pool_that_is_chosen_now(job):
    documents = render("slurm", job)
    assert "--mem=" in documents[0].text
    assert not re.search(r"\bauto\b", documents[0].text)
    (document,) = [each for each in render("kubernetes", job, image="x") if "fit" in each.name]
    assert "12000" in document.text or "12G" in document.text


def test_a_default_pool_that_does_not_exist_is_a_fault(tmp_path):
    step = bash("fit", "true", resources={"pool": "auto"})
    with (
        dask.config.set({"hyperplane.jobs.default_pool": "nowhere"}),
        pytest.raises(RequestError, match=r"hyperplane\.jobs\.default_pool"),
    ):
        new_job(Pipeline.from_steps("nightly", [step], root=tmp_path))
