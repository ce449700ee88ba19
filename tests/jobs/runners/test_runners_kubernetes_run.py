"""Steps as pods, without a Kubernetes: the manifests of attempts, options, and what pods say."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import os
import signal
import time
import zlib
from pathlib import Path

import dask
import pytest
from runner_cases import command, made

from hyperplane.errors import RequestError
from hyperplane.jobs import Resources, Step, calls, runners
from hyperplane.jobs.faults import MEMORY, kind_of
from hyperplane.jobs.manifest_text import as_yaml
from hyperplane.jobs.processes import Command
from hyperplane.jobs.runners.kubernetes_attempt import Sent, job_of, name_of, secret_of
from hyperplane.jobs.runners.kubernetes_pod import PodProcess
from hyperplane.jobs.runners.kubernetes_run import KubernetesRunner
from hyperplane.jobs.runners.kubernetes_watch import View
from hyperplane.spec.settings import KubernetesJobSettings

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "jobs" / "kubernetes-attempt.yaml"
IMAGE = "registry.example/flights:1"
PLACE = Path("/jobs/6f1d2c3b-0000-4000-8000-000000000001/steps/001-years/chunk-00002/attempt-1")
STEP = command("years", "python", "-c", "x", resources=Resources(cores=1.5, ram_gb=2, gpus=1))
COMMAND = Command(
    ("python", "/var/lib/hyperplane/$(HOME).py"),
    {"PATH": "/home/me/bin", "TOKEN": "s3cret"},
    "/var/lib/hyperplane",
    PLACE,
    own={"TEXT": "$(HOME) $$ \n", "TOKEN": "not this one"},
    hidden={"TOKEN": "s3cret ü"},
    script=Path("steps/$(HOME).py"),
    pool="16_16",
)
SENT = [Sent("hyperplane-file", "/var/lib/hyperplane/$(HOME).py", b"print(1)\xff")]
MADE = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "n", "uid": "u", "labels": {}},
}


def settings(**options):
    return KubernetesJobSettings(image=IMAGE, **options)


def test_the_job_of_an_attempt_is_as_the_file_shows():
    more = settings(
        node_selector=("example.com/pool={pool}", "alias={alias}", "disk=ssd"),
        tolerations=({"key": "batch", "operator": "Exists"},),
        image_pull_secrets=("registry",),
        service_account="steps",
        environ=("TZ=UTC",),
        labels=("team=a",),
        run_as_user=1000,
    )
    text = as_yaml(job_of(COMMAND, STEP, 1.5, more, SENT))
    if os.environ.get("HYPERPLANE_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
    assert "s3cret" not in text
    assert "/home/me" not in text


def test_labels_with_a_pool_are_for_steps_that_name_one():
    plain = dataclasses.replace(COMMAND, pool="")
    more = settings(node_selector=("example.com/pool={pool}", "disk=ssd"))
    pod = job_of(plain, STEP, 1, more, [])["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"disk": "ssd"}


def test_its_secret_has_what_is_hidden_and_the_files_and_belongs_to_the_job():
    found = secret_of(MADE, COMMAND, SENT)
    held = {name: base64.b64decode(text) for name, text in found["data"].items()}
    assert held == {"TOKEN": "s3cret ü".encode(), "hyperplane-file": b"print(1)\xff"}
    [owner] = found["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "batch/v1", "kind": "Job", "name": "n", "uid": "u"}
    assert list(secret_of(MADE, COMMAND, [])["data"]) == ["TOKEN"]
    assert secret_of(MADE, dataclasses.replace(COMMAND, hidden={}), []) is None


def test_names_are_short_and_their_own():
    step = "001-" + "Größe x" * 9
    place = Path("/j/6f1d2c3b-0000-4000-8000-000000000001/steps") / step / "chunk-12345/attempt-10"
    name = name_of(Command((), {}, "", place))
    assert len(name) <= 57  # a pod adds six characters
    assert name.endswith("-12345-10")
    assert name.startswith("hyperplane-6f1d2c3b-0000-001-gr-e-x")


def test_options_are_those_of_the_engine_over_the_configuration():
    told = {"namespace": "lab", "node-selector": ["disk=ssd"], "image": "there:1"}
    with dask.config.set({"hyperplane.engines.kubernetes": told}):
        found = runners.settle("kubernetes", {"image": IMAGE, "root": "/srv"})
    assert (found["image"], found["namespace"], found["root"]) == (IMAGE, "lab", "/srv")
    assert found["node_selector"] == ["disk=ssd"]
    assert runners.settle("kubernetes", found) == found


def test_all_that_is_wrong_with_options_is_told_at_once():
    with pytest.raises(RequestError) as caught:
        runners.settle("kubernetes", {"imag": "x", "namespace": "No Name", "root": "relative"})
    assert {fault.where for fault in caught.value.faults} == {
        "runner_options.imag", "runner_options.namespace", "runner_options.root"
    }  # fmt: skip
    assert "did you mean image?" in str(caught.value)
    with pytest.raises(RequestError, match="the runner slurm has no options"):
        runners.settle("slurm", {"image": "x"})


def runner(**options):
    return KubernetesRunner({}, runners.settle("kubernetes", options))


def test_an_image_is_asked_for():
    assert "image=registry/name:tag" in runner().missing()


def test_functions_requirements_and_large_files_are_refused_together(tmp_path):
    (tmp_path / "large.py").write_bytes(b"#" * 1_000_000)
    (tmp_path / "needs.txt").write_text("polars\n")
    steps = [
        Step(name="large", kind="python", path="large.py", depends_on=()),
        command("call", "python", "-m", calls.PROGRAM, depends_on=()),
    ]
    job = made(*steps, root=tmp_path, requirements="needs.txt")
    told = [fault.where for fault in runner().unsupported(job.pipeline)]
    assert told == ["requirements", "step 'large': large.py", "step 'call': argv"]
    told = [fault.where for fault in runner(root="/srv").unsupported(job.pipeline)]
    assert told == ["requirements", "step 'call': argv"]


def test_where_steps_find_their_files():
    step = Step(name="a", kind="python", path="steps/a.py", working_dir="data")
    sent, held = runner().there(made(step)), runner(root="/srv").there(made(step))
    assert (sent.pipeline.root, sent.pipeline.steps[0].path) == ("/var/lib/hyperplane", "a.py")
    assert sent.pipeline.steps[0].working_dir is None
    assert (held.pipeline.root, held.pipeline.steps[0].path) == ("/srv", "steps/a.py")
    assert held.pipeline.steps[0].working_dir == "data"
    assert sent.python == held.python == "python"


# What Kubernetes says of pods, as it was seen.
def pod(state, phase="Running", **status):
    container = {"name": "step", "state": state, "restartCount": 0}
    return {
        "metadata": {"name": "n-x", **status.pop("metadata", {})},
        "spec": {"containers": [{"name": "step", "resources": {"limits": {"memory": "100"}}}]},
        "status": {"phase": phase, "containerStatuses": [container], **status},
    }


def ended(code, **more):
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:10Z"}
    return {"terminated": {"exitCode": code, **times, **more}}


class Seen:
    """What a watch has seen."""

    def __init__(self, view, log=b"its log\n"):
        self._view, self._log, self.deleted = view, log, []

    async def view(self, job_id, since):
        return self._view

    async def log(self, name):
        return self._log

    async def delete(self, name):
        self.deleted.append(name)
        return True


def attempt(tmp_path, *pods, jobs=True):
    """An attempt whose pods are these, and what there is."""
    place = tmp_path / "6f1d2c3b-0000-4000-8000-000000000001" / "steps" / "000-a" / "attempt-1"
    place.parent.mkdir(parents=True, exist_ok=True)
    there = Command((), {}, "", place)
    there.file(".log").touch()
    name = name_of(there)
    view = View({name: {}} if jobs else {}, {name: list(pods)})
    return PodProcess(there, Seen(view), time.monotonic()), view


def waited(tmp_path, *pods, **more):
    """The exit code of an attempt whose pods are these, its log, and the attempt."""
    process, _ = attempt(tmp_path, *pods, **more)
    code = asyncio.run(asyncio.wait_for(process.wait(), 20))
    return code, process.command.file(".log").read_text(), process


def test_an_exit_code_and_the_times_are_written_down(tmp_path):
    code, log, process = waited(tmp_path, pod(ended(3), "Failed"))
    assert (code, log) == (3, "its log\n")
    assert process.gone_at() - process.command.file(".pid").stat().st_mtime == 10
    assert process._watch.deleted == [name_of(process.command)]


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (143, -15), (137, -9), (255, 255)])
def test_signals_are_told_from_exit_codes(tmp_path, code, expected):
    assert waited(tmp_path, pod(ended(code), "Failed"))[0] == expected


def test_memory_is_said(tmp_path):
    code, log, _ = waited(tmp_path, pod(ended(137, reason="OOMKilled"), "Failed"))
    assert code == -signal.SIGKILL
    assert "more than the memory of its pod" in log
    assert kind_of(code, log) == MEMORY


@pytest.mark.parametrize(
    "lost",
    [
        pod({}, "Failed", reason="Evicted", message="The node was low on\nresource: memory."),
        pod(ended(143), "Failed", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod(ended(143), "Failed", conditions=[{"type": "DisruptionTarget", "status": "True"}]),
    ],
)
def test_what_kubernetes_ends_for_its_own_reasons_is_lost(tmp_path, lost):
    code, log, process = waited(tmp_path, lost)
    assert code is None
    assert "Kubernetes ended the pod: " in log
    assert process._watch.deleted


def test_a_job_that_is_gone_is_lost(tmp_path):
    assert waited(tmp_path, jobs=False)[0] is None


def test_what_never_starts_is_an_error_of_the_input(tmp_path):
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    code, log, _ = waited(tmp_path, pod(waiting, "Pending"))
    assert code == 78
    assert "ImagePullBackOff: not found; check hyperplane.engines.kubernetes.image" in log
    no_program = ended(128, reason="StartError", message='exec: "nothing": not found')
    code, log, _ = waited(tmp_path / "b", pod(no_program, "Failed"))
    assert code == 127
    assert 'StartError: exec: "nothing": not found' in log


def test_an_executed_notebook_comes_with_the_log(tmp_path):
    packed = base64.b64encode(zlib.compress(b"{1}")).decode()
    log = f"cell\n\nhyperplane-notebook:{packed}\nValueError: x\n".encode()
    process, view = attempt(tmp_path, pod(ended(1), "Failed"))
    output = tmp_path / "out" / "a.ipynb"
    process.command.file(".notebook").write_text(str(output))
    process._watch = Seen(view, log)
    assert asyncio.run(asyncio.wait_for(process.wait(), 20)) == 1
    assert output.read_bytes() == b"{1}"
    assert process.command.file(".log").read_text() == "cell\nValueError: x\n"
