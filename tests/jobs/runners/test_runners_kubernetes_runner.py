"""Steps as pods, without a Kubernetes: manifests of attempts, options, and staged files."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import dask
import pytest
from runner_cases import command, make_job

from hyperplane.errors import RequestError
from hyperplane.jobs import Resources, Step, calls
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners import registry
from hyperplane.jobs.runners.attempt_names import attempt_job_name
from hyperplane.jobs.runners.kubernetes.attempt_manifests import build_job, build_secret
from hyperplane.jobs.runners.kubernetes.runner import KubernetesRunner
from hyperplane.platforms.kubernetes.manifest_yaml import dump_yaml
from hyperplane.platforms.kubernetes.staged_files import StagedFile
from hyperplane.spec.settings import KubernetesJobSettings

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "jobs" / "kubernetes-attempt.yaml"
IMAGE = "registry.example/flights:1"
PREFIX = Path("/jobs/6f1d2c3b-0000-4000-8000-000000000001/steps/001-years/chunk-00002/attempt-1")
STEP = command("years", "python", "-c", "x", resources=Resources(cores=1.5, ram_gb=2, gpus=1))
COMMAND = AttemptCommand(
    ("python", "/var/lib/hyperplane/$(HOME).py"),
    {"PATH": "/home/me/bin", "TOKEN": "s3cret"},
    "/var/lib/hyperplane",
    PREFIX,
    step_variables={"TEXT": "$(HOME) $$ \n", "TOKEN": "not this one"},
    secret_variables={"TOKEN": "s3cret ü"},
    script=Path("steps/$(HOME).py"),
    pool="16_16",
)
STAGED_FILES = [StagedFile("hyperplane-file", "/var/lib/hyperplane/$(HOME).py", b"print(1)\xff")]
JOB = {
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
    text = dump_yaml(build_job(COMMAND, STEP, 1.5, more, STAGED_FILES))
    if os.environ.get("HYPERPLANE_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
    assert "s3cret" not in text
    assert "/home/me" not in text


def test_node_selectors_with_a_pool_are_for_steps_that_name_one():
    plain = dataclasses.replace(COMMAND, pool="")
    more = settings(node_selector=("example.com/pool={pool}", "disk=ssd"))
    pod = build_job(plain, STEP, 1, more, [])["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"disk": "ssd"}


def test_the_secret_has_hidden_values_and_files_and_is_owned_by_the_job():
    secret = build_secret(JOB, COMMAND, STAGED_FILES)
    contents = {name: base64.b64decode(text) for name, text in secret["data"].items()}
    assert contents == {"TOKEN": "s3cret ü".encode(), "hyperplane-file": b"print(1)\xff"}
    [owner] = secret["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "batch/v1", "kind": "Job", "name": "n", "uid": "u"}
    assert list(build_secret(JOB, COMMAND, [])["data"]) == ["TOKEN"]
    assert build_secret(JOB, dataclasses.replace(COMMAND, secret_variables={}), []) is None


def test_names_of_jobs_are_short_and_distinct():
    step = "001-" + "Größe x" * 9
    place = Path("/j/6f1d2c3b-0000-4000-8000-000000000001/steps") / step / "chunk-12345/attempt-10"
    name = attempt_job_name(AttemptCommand((), {}, "", place))
    assert len(name) <= 57  # a pod adds six characters
    assert name.endswith("-12345-10")
    assert name.startswith("hyperplane-6f1d2c3b-0000-001-gr-e-x")


def test_options_are_those_of_the_engine_over_the_configuration():
    configured = {"namespace": "lab", "node-selector": ["disk=ssd"], "image": "there:1"}
    with dask.config.set({"hyperplane.engines.kubernetes": configured}):
        options = registry.resolve_options("kubernetes", {"image": IMAGE, "root": "/srv"})
    assert (options["image"], options["namespace"], options["root"]) == (IMAGE, "lab", "/srv")
    assert options["node_selector"] == ["disk=ssd"]
    assert registry.resolve_options("kubernetes", options) == options


def test_all_that_is_wrong_with_options_is_reported_at_once():
    with pytest.raises(RequestError) as caught:
        registry.resolve_options(
            "kubernetes", {"imag": "x", "namespace": "No Name", "root": "relative"}
        )
    assert {fault.where for fault in caught.value.faults} == {
        "runner_options.imag", "runner_options.namespace", "runner_options.root"
    }  # fmt: skip
    assert "did you mean image?" in str(caught.value)
    with pytest.raises(RequestError, match="unknown option; the runner slurm has none"):
        registry.resolve_options("slurm", {"image": "x"})


def runner(**options):
    return KubernetesRunner({}, registry.resolve_options("kubernetes", options))


def test_an_image_is_required():
    assert "image=registry/name:tag" in runner().unavailable_reason()


def test_functions_requirements_and_large_files_are_refused_together(tmp_path):
    (tmp_path / "large.py").write_bytes(b"#" * 1_000_000)
    (tmp_path / "needs.txt").write_text("polars\n")
    steps = [
        Step(name="large", kind="python", path="large.py", depends_on=()),
        command("call", "python", "-m", calls.PROGRAM, depends_on=()),
    ]
    job = make_job(*steps, root=tmp_path, requirements="needs.txt")
    places = [fault.where for fault in runner().find_unsupported(job.pipeline)]
    assert places == ["requirements", "step 'large': large.py", "step 'call': argv"]
    places = [fault.where for fault in runner(root="/srv").find_unsupported(job.pipeline)]
    assert places == ["requirements", "step 'call': argv"]


def test_paths_are_those_of_staged_files_or_of_the_image():
    step = Step(name="a", kind="python", path="steps/a.py", working_dir="data")
    staged, in_image = (
        runner().with_runtime_paths(make_job(step)),
        runner(root="/srv").with_runtime_paths(make_job(step)),
    )
    assert (staged.pipeline.root, staged.pipeline.steps[0].path) == ("/var/lib/hyperplane", "a.py")
    assert staged.pipeline.steps[0].working_dir is None
    assert (in_image.pipeline.root, in_image.pipeline.steps[0].path) == ("/srv", "steps/a.py")
    assert in_image.pipeline.steps[0].working_dir == "data"
    assert staged.python == in_image.python == "python"


def test_the_kubernetes_cluster_is_selected_at_submission(tmp_path, monkeypatch):
    contexts = [{"name": "far", "context": {"namespace": "lab"}}, {"name": "near"}]
    (tmp_path / "a").write_text(json.dumps({"contexts": contexts}))
    (tmp_path / "b").write_text(json.dumps({"current-context": "far"}))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    options = registry.resolve_options("kubernetes", {"image": IMAGE})
    assert (options["context"], options["namespace"]) == ("far", "lab")
    assert options["kubeconfig"] == f"{tmp_path}/a:{tmp_path}/b"
    assert registry.resolve_options("kubernetes", {"context": "near"})["namespace"] is None
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
    assert registry.resolve_options("kubernetes", options) == options


@pytest.mark.process
def test_the_program_that_executes_notebooks_is_staged_completely(tmp_path):
    class Creates:
        async def create(self, job, secret_of, *, waits_for_secret):
            self.job, self.secret = job, secret_of({**job, "metadata": {**JOB["metadata"]}})

    prefix = tmp_path / "steps" / "000-n" / "attempt-1"
    prefix.parent.mkdir(parents=True)
    (tmp_path / "n.ipynb").write_text("{}")
    pod_runner = runner(image=IMAGE)
    pod_runner._watcher = watcher = Creates()
    argv = ("python", "here.py", "/var/lib/hyperplane/n.ipynb", "out.ipynb")
    attempt = AttemptCommand(
        argv, {}, "/", prefix, script=tmp_path / "n.ipynb", notebook=Path("out.ipynb")
    )
    asyncio.run(pod_runner.start(attempt, Step(name="n", kind="notebook", path="n.ipynb"), 1.0))
    (container,) = watcher.job["spec"]["template"]["spec"]["containers"]
    for mount in container["volumeMounts"][1:]:
        file = Path(f"{tmp_path}/pod{mount['mountPath']}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(watcher.secret["data"][mount["subPath"]]))
    *_, program, notebook, _ = container["command"]
    # Without site packages, including hyperplane: it fails at the first missing import.
    words = [sys.executable, "-I", "-S", f"{tmp_path}/pod{program}", f"{tmp_path}/pod{notebook}"]
    done = subprocess.run(
        [*words, str(tmp_path / "o")], capture_output=True, text=True, check=False
    )
    message = (
        "No module named 'papermill'. Notebooks need additional packages: "
        "pip install 'hyperplane[jobs]'"
    )
    assert (done.returncode, done.stderr) == (1, f"{message}\n")
