"""The slurm engine without Slurm: plans, scripts and messages."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.config
import pytest

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.dask.slurm import script as slurm_script
from hyperplane.clusters.dask.slurm import start as slurm_start
from hyperplane.clusters.dask.slurm.engine import SlurmEngine
from hyperplane.errors import RequestError
from hyperplane.platforms.local import private_folders
from hyperplane.platforms.slurm.commands import COMMANDS
from hyperplane.platforms.slurm.shared_folder import private_folder, shared_folder
from hyperplane.spec.settings import SlurmSettings
from hyperplane.spec.settings.slurm import parse_walltime

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "engines"
LAYOUT: dict[str, Any] = {
    "num_workers": 3,
    "nprocs": 5,
    "nthreads": 3,
    "ram_gb_per_proc": 2.4,
    "cores_per_worker": 15.5,
    "name": "flights",
}
PLAIN: dict[str, Any] = {"python": "/opt/python/bin/python", "shared_folder": "/shared"}
FULL: dict[str, Any] = {
    **PLAIN,
    "partition": "short,long",
    "account": "air-traffic",
    "qos": "normal",
    "constraint": "[rack1|rack2]&ib",
    "walltime": "1-02:30:00",
    "leave_before": "5 minutes",
    "memory_margin_gb": 0.5,
    "extra_directives": ["--exclusive", "--comment='of the flights'"],
    "prologue": ["module load python/3.12", "export TMPDIR=/scratch/$USER"],
    "python": "/opt/my python/bin/python",
    "interface": "ib0",
    "log_folder": "/shared/logs of 100%",
    "local_directory": "/scratch/$(whoami)",
    "security": "none",
}


def plan(options: dict[str, Any] | None = None, **arguments: Any) -> hyperplane.ClusterPlan:
    given = {"engine": "slurm", **LAYOUT, **arguments}
    return hyperplane.plan_cluster(**given, engine_options=options or {})


def rendered(options: dict[str, Any], **arguments: Any) -> str:
    return SlurmEngine().render(plan(options, **arguments))


@pytest.mark.parametrize(
    ("name", "options", "arguments"),
    [
        ("slurm", PLAIN, {}),
        ("slurm-full", FULL, {"memory": hyperplane.MemoryPolicy(0.5, 0.6, 0.7, False)}),
        ("slurm-gpu", PLAIN, {"ngpus": 2}),
        ("slurm-gpu-full", FULL, {"ngpus": 1}),
    ],
)
def test_rendered_files_equal_the_expected_ones(
    name: str, options: dict[str, Any], arguments: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "login1")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(private_folders, "_system_name", lambda: "0123456789")
    file = GOLDEN / f"{name}.sh"
    text = rendered(options, **arguments)
    if os.environ.get("HYPERPLANE_WRITE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_memory_is_the_processes_and_the_margin_in_whole_mebibytes() -> None:
    asked = plan(PLAIN)
    assert asked.worker.total_ram == 12_000_000_000
    assert "--mem=11683M" in rendered(PLAIN)  # 12.25 GB are 11682.5 MiB
    assert "--mem=11445M" in rendered({**PLAIN, "memory_margin_gb": 0})
    assert "--memory-limit 2400000000B" in rendered(PLAIN)


@pytest.mark.process
def test_a_script_is_shell_that_runs_nothing_of_the_settings(tmp_path: Path) -> None:
    """With a program that prints its arguments instead of Python."""
    canary = tmp_path / "canary"
    python = tmp_path / "it's; touch canary"
    python.write_text('#!/bin/bash\nprintf "%s\\n" "$@" > arguments; env > variables\n')
    python.chmod(0o755)
    options = {**FULL, "python": str(python), "local_directory": f"$(touch {canary})"}
    options["prologue"] = ["export GIVEN=by-the-prologue"]
    script = tmp_path / "job.sh"
    script.write_text(rendered(options))
    subprocess.run(["bash", script], cwd=tmp_path, check=True)
    assert not canary.exists()
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:2] == ["-m", "distributed.cli.dask_worker"]
    given = dict(zip(arguments[3::2], arguments[4::2], strict=False))
    assert given["--local-directory"] == f"$(touch {canary})"
    assert (given["--nworkers"], given["--nthreads"]) == ("5", "3")
    assert given["--lifetime"] == f"{26.5 * 3600 - 300:.0f}s"
    variables = (tmp_path / "variables").read_text().splitlines()
    assert "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE=0.95" in variables
    assert "GIVEN=by-the-prologue" in variables


HOSTILE = [
    ("partition", "long\n#SBATCH --uid=0"),
    ("partition", "long --uid=0"),
    ("partition", "-x"),
    ("account", "a;touch x"),
    ("account", "a\n"),
    ("qos", "$(id)"),
    ("constraint", "gpu\ntouch x"),
    ("constraint", "a b"),
    ("interface", "ib0 --preload x"),
    ("python", "python\ntouch x"),
    ("shared_folder", '/a" --uid=0 "'),
    ("shared_folder", "/a\n#SBATCH --uid=0"),
    ("log_folder", "/a\u2028b"),
    ("local_directory", ""),
    ("extra_directives", ["--exclusive\n#SBATCH --uid=0"]),
    ("extra_directives", ["--exclusive --uid=0"]),
    ("extra_directives", ["--mem=1T"]),
    ("extra_directives", ["--arr=1-9"]),
    ("extra_directives", ["-n4"]),
    ("extra_directives", ["exclusive"]),
    ("extra_directives", ["--comment='unclosed"]),
    ("prologue", ["echo a\n#SBATCH --uid=0"]),
    ("walltime", "soon"),
    ("walltime", "00:00:30"),
    ("walltime", -1),
    ("memory_margin_gb", -1),
    ("memory_margin_gb", float("nan")),
    ("leave_before", "a while"),
    ("security", "some"),
    ("partitoin", "long"),
]


@pytest.mark.parametrize(("name", "value"), HOSTILE)
def test_settings_that_would_add_lines_or_are_invalid_are_refused(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        plan({name: value})
    [fault] = caught.value.faults
    assert fault.where.startswith(f"engine_options.{name}")


@pytest.mark.parametrize(
    "directive",
    ["--exclusive", "-x node7", "--reservation=tests", "--mem-bind=local", "-C 'a&b'", "--nice=5"],
)
def test_other_options_of_sbatch_are_taken(directive: str) -> None:
    assert f"\n#SBATCH {directive}\n" in rendered({"extra_directives": [directive]})


@pytest.mark.parametrize(
    ("walltime", "seconds"),
    [
        (5400, 5400),  # as YAML reads 1:30:00
        ("1:30:00", 5400),
        ("90:00", 5400),
        ("1-0", 86_400),
        ("1-06:30", 109_800),
        ("2 hours", 7200),
        ("120", 120),
    ],
)
def test_walltimes(walltime: str | float, seconds: int) -> None:
    assert parse_walltime(walltime) == seconds
    hours = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    assert f"\n#SBATCH --time={hours}\n" in rendered({"walltime": walltime})


def test_without_a_walltime_the_partition_decides_and_workers_stay() -> None:
    text = rendered({})
    assert "--time" not in text
    assert "--lifetime" not in text
    assert slurm_script.lifetime(SlurmSettings(walltime="90s")) == 45  # half at least


def test_a_process_runs_on_each_gpu() -> None:
    for gpus in (1, 2):
        found = plan(ngpus=gpus)
        assert (found.worker.nprocs, found.dask_workers) == (gpus, 3 * gpus)
        assert "one worker process runs on each GPU" in found.fit_note
        text = rendered({}, ngpus=gpus)
        assert f"\n#SBATCH --gres=gpu:{gpus}\n" in text
        assert " -m dask cuda worker tls://" in text
        assert "--nworkers" not in text


def test_the_folder_is_the_one_that_is_reserved_and_only_its_owner_enters(tmp_path: Path) -> None:
    settings = SlurmSettings(shared_folder=str(tmp_path))
    record = records.ClusterRecord(
        "mine", "slurm", "", "", os.getpid(), records.own_start_time(), 1, 1, 1.0
    )
    record = records.reserve(record, str(shared_folder(settings)))
    folder = private_folder(settings, "mine")
    assert record.scratch == str(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    records.remove(record.name, record.scratch)


@pytest.mark.process
@pytest.mark.parametrize("there", ["", "state", "state/shared"])
def test_a_shared_folder_that_was_made_is_removed_again(
    there: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in COMMANDS:
        (programs / name).write_text("#!/bin/bash\necho no Slurm here >&2; exit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    options = {"shared_folder": str(tmp_path / "state" / "shared"), "interface": "lo"}
    with pytest.raises(hyperplane.StartFailed, match="sbatch refused the job: no Slurm here"):
        hyperplane.start(plan(options, num_workers=1, timeout=120))
    assert sorted(tmp_path.rglob("*")) == before
    assert records.read_all() == []


@pytest.mark.process
def test_a_missing_sbatch_is_not_a_refused_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    options = {"shared_folder": str(tmp_path / "shared"), "interface": "lo"}
    with pytest.raises(hyperplane.StartFailed, match="sbatch is not on PATH; use a machine"):
        slurm_start.start(plan(options, num_workers=1, timeout=120))
    assert records.read_all() == []


def test_a_key_that_cannot_be_written_is_an_error_about_the_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk quota exceeded")

    monkeypatch.setattr(slurm_start, "_write_keys", fail)
    options = {"shared_folder": str(tmp_path / "shared"), "interface": "lo"}
    message = "log_folder cannot be created or written: disk quota exceeded"
    with pytest.raises(hyperplane.StartFailed, match=message):
        slurm_start.start(plan(options, num_workers=1, timeout=120))
    assert records.read_all() == []


@pytest.mark.process
def test_a_start_in_a_job_of_slurm_passes_no_variables_of_that_job_to_sbatch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in COMMANDS:
        text = f"#!/bin/bash\nenv > {tmp_path}/variables-{name}; echo full >&2; exit 1\n"
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    surrounding = {"SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "SLURM_CPUS_PER_TASK", "SBATCH_JOB_NAME"}
    for name in surrounding:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    options = {"shared_folder": str(tmp_path / "shared"), "interface": "lo"}
    with pytest.raises(hyperplane.StartFailed, match="sbatch refused the job: full"):
        hyperplane.start(plan(options, num_workers=1, timeout=120))
    lines = (tmp_path / "variables-sbatch").read_text().splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert not surrounding & names
    assert "SLURM_CONF=/etc/slurm.conf" in lines


def test_dask_settings_of_the_user_have_priority() -> None:
    assert "WORKER_TTL=60s" in rendered({})
    with dask.config.set({"distributed.scheduler.worker-ttl": "45s"}):
        assert "WORKER_TTL" not in rendered({})


def test_available_names_missing_commands_and_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    usable, reason = SlurmEngine().available()
    assert not usable
    assert "sbatch, squeue, scancel" in reason
    for name in COMMANDS:
        (tmp_path / name).touch(mode=0o755)
    usable, reason = SlurmEngine().available()
    assert usable
    assert "Slurm is contacted when a cluster starts" in reason
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        assert "pip install 'hyperplane[slurm]'" in SlurmEngine().available().reason


LOADS = """
import signal, threading
def load():
    from hyperplane.clusters.dask.slurm import cluster
thread = threading.Thread(target=load)
{}
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.signal.__module__ == "signal"
from dask_jobqueue.slurm import SLURMRunner
from hyperplane.clusters.dask.slurm.cluster import GuardedSLURMCluster
"""


@pytest.mark.process
@pytest.mark.parametrize("how", ["load()", "thread.start(); thread.join()"])
def test_loading_dask_jobqueue_leaves_ctrl_c_as_it_is(how: str) -> None:
    subprocess.run([sys.executable, "-c", LOADS.format(how)], check=True)
