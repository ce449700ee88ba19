"""Jobs of the engine ``ray:slurm``: scripts, states and ends, without Slurm and Ray."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest
from services import until

import hyperplane
from hyperplane import config
from hyperplane.clusters.engine import Availability
from hyperplane.clusters.ray import node_group as rules
from hyperplane.clusters.ray.slurm import node_group
from hyperplane.clusters.ray.slurm.engine import SlurmRayEngine
from hyperplane.clusters.remote_nodes import slurm_group
from hyperplane.clusters.remote_nodes.job_script import NAME_PLACEHOLDER
from hyperplane.platforms.local.addresses import find_address
from hyperplane.platforms.slurm.job_state import SlurmJobStatus
from hyperplane.spec.settings import RaySlurmSettings


@pytest.fixture(autouse=True)
def available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlurmRayEngine, "available", lambda self: Availability(True, "a test"))


def plan(**options: Any) -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(
        engine="ray:slurm", num_workers=2, nprocs=2, nthreads=3, cores_per_worker=6,
        ram_gb_per_proc=4, **options,
    )  # fmt: skip


class TestScript:
    def test_a_job_has_one_worker_node(self, tmp_path: Path) -> None:
        options = {"partition": "long", "walltime": "2 hours", "prologue": ["module load x"]}
        options |= {"shared_folder": str(tmp_path), "python": "/opt/my python"}
        script = SlurmRayEngine().render(plan(engine_options=options))
        lines = script.splitlines()
        for line in ("cpus-per-task=3", "mem=4292M", "partition=long", "time=2:00:00", "ntasks=1"):
            assert f"#SBATCH --{line}" in lines
        assert lines.index("module load x") < len(lines) - 1
        program, option, module, file, name = shlex.split(lines[-1])[1:]
        assert (program, option) == ("/opt/my python", "-m")
        assert module == "hyperplane.clusters.ray.slurm.job_program"
        assert file.startswith(str(tmp_path))
        assert name == NAME_PLACEHOLDER
        assert "#SBATCH --no-requeue" in lines

    def test_settings_are_those_of_slurm_unless_the_engine_has_its_own(self) -> None:
        slurm = {"partition": "short", "memory_margin_gb": 7, "leave_before": "1m"}
        with dask.config.set({"hyperplane.engines.slurm": slurm}):
            found = config.engine_settings("ray:slurm", RaySlurmSettings)
        assert (found.partition, found.memory_margin_gb, found.dashboard) == ("short", 0.5, True)

    def test_a_plan_names_the_jobs(self) -> None:
        found = plan()
        assert found.dask_workers == 4
        assert SlurmRayEngine().start_line(found).endswith("submitting 4 Slurm jobs")


def test_addresses_of_interfaces() -> None:
    assert find_address("lo") == "127.0.0.1"
    assert len(find_address(None).split(".")) == 4
    with pytest.raises(ValueError, match=r"with an IPv4 address: .*lo"):
        find_address("nope0")


#: Commands of Slurm: jobs are files with their state, in the folder of the commands.
COMMANDS = {
    "sbatch": """
cd "$(dirname "$0")"
[ -e refuses ] && { echo "sbatch: error: Unable to contact slurm controller" >&2; exit 1; }
cat > /dev/null
sleep "$(cat delay)"
echo PENDING > "jobs/$$"
echo $$
""",
    "squeue": """
cd "$(dirname "$0")/jobs"
for job in *; do [ -e "$job" ] && echo "$job|$(cat "$job")|1:00|None|name"; done
""",
    "scancel": """
cd "$(dirname "$0")"
[ -e refuses ] && { echo "scancel: error: Unable to contact slurm controller" >&2; exit 1; }
for job; do [ -e "jobs/$job" ] && echo CANCELLED > "jobs/$job"; done
exit 0
""",
}


class FakeSlurm:
    """Commands that behave as those of Slurm, with jobs that never run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "jobs").mkdir()
        (folder / "delay").write_text("0")
        for name, text in COMMANDS.items():
            (folder / name).write_text(f"#!/bin/sh{text}")
            (folder / name).chmod(0o755)

    def states(self) -> list[str]:
        return [file.read_text().strip() for file in (self.folder / "jobs").iterdir()]

    def set(self, state: str) -> None:
        for file in (self.folder / "jobs").iterdir():
            (self.folder / "new").write_text(state)
            (self.folder / "new").replace(file)  # squeue reads the old or the new state

    def refuse(self, refuses: bool = True) -> None:
        if refuses:
            (self.folder / "refuses").touch()
        else:
            (self.folder / "refuses").unlink()


@pytest.mark.process
class TestJobs:
    """The jobs of a cluster, with commands that behave as those of Slurm."""

    @pytest.fixture
    def slurm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
        folder = tmp_path / "bin"
        folder.mkdir()
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return FakeSlurm(folder)

    @pytest.fixture
    def events(self) -> list[dict[str, Any]]:
        return []

    @pytest.fixture
    def group(
        self,
        slurm: FakeSlurm,
        events: list[dict[str, Any]],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Iterator[node_group.SlurmRayNodeGroup]:
        """A running cluster whose head is not there, which the tests do not need."""
        monkeypatch.setenv("RAY_raylet_start_wait_time_s", "30")  # the group sets another value
        for name in ("_FIRST_INTERVAL", "_LONGEST_INTERVAL"):
            monkeypatch.setattr(slurm_group, name, 0.05)
        monkeypatch.setattr(slurm_group, "_END_SECONDS", 1.0)
        monkeypatch.setattr(rules, "end_processes", lambda head: None)  # of this process
        made = node_group.SlurmRayNodeGroup(lambda **event: events.append(event))
        head = {"address": "127.0.0.1:1", "dashboard": ""}
        monkeypatch.setattr(made, "_start_encrypted_head", lambda *_: made._report(**head))
        monkeypatch.setattr(node_group.SlurmRayNodeGroup, "_is_idle", lambda self: False)
        processes = [("raylet", SimpleNamespace(pid=1)), ("gcs_server", SimpleNamespace(pid=2))]
        made._head = SimpleNamespace(
            gcs_address="127.0.0.1:1",
            live_processes=lambda: processes,
            kill_all_processes=lambda **_: None,
        )
        made.handle(
            {
                "name": "cluster", "folder": str(tmp_path), "scratch": str(tmp_path),
                "logs": str(tmp_path / "logs"),
                "script": "#!/bin/sh\nexec program WORKER_NODE\n", "local_directory": None,
                "host": "127.0.0.1", "tls": False, "user_tmpdir": "", "interface_key": "",
            }
        )  # fmt: skip
        made.handle({"ready": True})
        yield made
        made.end()
        made._loop.close()

    def add(self, group: node_group.SlurmRayNodeGroup, count: int) -> None:
        for number in range(count):
            group.handle(
                {
                    "worker": f"ray-worker-{number}",
                    "cpus": 1,
                    "gpus": 0,
                    "memory": 1,
                    "object_store": 1,
                }
            )

    @pytest.mark.slow
    def test_the_end_submits_no_more_jobs_and_cancels_those_there_are(
        self, group: node_group.SlurmRayNodeGroup, slurm: FakeSlurm
    ) -> None:
        (slurm.folder / "delay").write_text("1")
        self.add(group, 80)
        until(lambda: len(slurm.states()) > 2, 60)
        group.end()
        ended = slurm.states()
        assert {*ended} == {"CANCELLED"}
        assert len(ended) < 80
        assert not group._submissions

    @pytest.mark.slow
    def test_jobs_that_slurm_does_not_cancel_are_named(
        self,
        group: node_group.SlurmRayNodeGroup,
        slurm: FakeSlurm,
        events: list[dict[str, Any]],
    ) -> None:
        self.add(group, 2)
        until(lambda: len(group._jobs) == 2, 60)
        slurm.refuse()
        group.end()
        assert re.search(r"run: scancel \d+ \d+ \(.*Unable to contact", events[-1]["message"])
        assert slurm.states() == ["PENDING"] * 2

    def test_a_job_is_submitted_when_slurm_answers_again(
        self,
        group: node_group.SlurmRayNodeGroup,
        slurm: FakeSlurm,
        events: list[dict[str, Any]],
    ) -> None:
        slurm.refuse()
        self.add(group, 1)

        def last_status() -> str:
            texts = [event["text"] for event in events if event.get("event") == "status"]
            return texts[-1] if texts else ""

        until(lambda: "Unable to contact" in last_status(), 60)
        time.sleep(0.3)
        assert "Unable to contact" in last_status()
        assert group.check()
        slurm.refuse(refuses=False)
        until(lambda: slurm.states() == ["PENDING"], 60)
        until(lambda: last_status() == "squeue reports: 1 job PENDING", 60)
        assert not [event for event in events if event.get("event") in ("not_added", "warning")]

    def test_the_jobs_of_withdrawn_worker_nodes_are_cancelled(
        self, group: node_group.SlurmRayNodeGroup, slurm: FakeSlurm
    ) -> None:
        self.add(group, 2)
        until(lambda: len(slurm.states()) == 2, 60)
        group.handle({"withdraw": ["ray-worker-0"]})
        until(lambda: sorted(slurm.states()) == ["CANCELLED", "PENDING"], 60)
        assert list(group._starting) == ["ray-worker-1"]

    @pytest.mark.parametrize(
        ("states", "reason"),
        [
            (["RUNNING", "COMPLETING", "TIMEOUT"], "was ended by Slurm at its time limit of 1:00"),
            (["OUT_OF_MEMORY"], "raise ram_gb_per_proc"),
            (["RUNNING"], "does not answer any more, and was cancelled"),
        ],
    )
    def test_the_reason_of_an_end_is_the_final_state_of_the_job(
        self,
        group: node_group.SlurmRayNodeGroup,
        slurm: FakeSlurm,
        events: list[dict[str, Any]],
        monkeypatch: pytest.MonkeyPatch,
        states: list[str],
        reason: str,
    ) -> None:
        monkeypatch.setattr(slurm_group, "_NOTICE_SECONDS", 60.0 if len(states) > 1 else 0.2)
        self.add(group, 1)
        until(lambda: len(group._jobs) == 1, 60)
        [job_id] = group._jobs
        slurm.set(states[0])
        group._server._expected.clear()  # as if its program had connected
        group._handle_end("ray-worker-0", job_id)
        for state in states[1:]:
            time.sleep(0.3)
            slurm.set(state)
        until(lambda: any(reason in event.get("message", "") for event in events), 60)
        until(lambda: slurm.states() == ["CANCELLED"], 60)
        [warning] = [event for event in events if event.get("event") == "warning"]
        assert warning["message"].endswith("; it is submitted again")


class TestStates:
    def test_jobs_that_never_connect(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> None:
        monkeypatch.setenv("RAY_raylet_start_wait_time_s", "30")  # the group sets another value
        group = node_group.SlurmRayNodeGroup(lambda **event: None)
        request.addfinalizer(group._loop.close)
        group._logs = tmp_path
        (tmp_path / "cluster-7.log").write_text("no module\n")
        assert group._find_fault("7", SlurmJobStatus("RUNNING", "None", "1:00")) == ""
        assert group._find_fault("7", SlurmJobStatus("COMPLETING", "None", "1:00")) == ""
        blocked = group._find_fault("7", SlurmJobStatus("PENDING", "InvalidQOS", "1:00"))
        assert "set a QOS" in blocked
        for status in (None, SlurmJobStatus("FAILED", "NonZeroExitCode", "1:00")):
            fault = group._find_fault("7", status)
            assert "ended before its worker node connected" in fault
            assert fault.endswith("last lines of its output:\nno module")

    def test_only_a_running_job_may_be_unreachable(self) -> None:
        pending = SlurmJobStatus("PENDING", "Resources", "1:00")
        running = SlurmJobStatus("RUNNING", "None", "1:00")
        assert slurm_group._describe_waiting({"1": pending}, 1, "key") == (
            "squeue reports: 1 job PENDING (Resources)"
        )
        key = "hyperplane.engines.ray_slurm.interface"
        assert f"({key})" in slurm_group._describe_waiting({"1": running}, 1, key)
