"""Rendered Kubernetes manifests: read back, and their steps run as pods would run them."""

import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from kubernetes_variables import expand
from runner_cases import HOSTILE, command, make_job, typical

from hyperplane.jobs import Resources, Step
from hyperplane.jobs.execution.failure_kinds import classify_failure
from hyperplane.jobs.execution.step_environment import PARAMETERS, step_variables
from hyperplane.jobs.exporters import kubernetes
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.runners import item
from hyperplane.jobs.store.job_records import WorkUnit
from hyperplane.jobs.submission.parameters import PARAMETER_PREFIX

IMAGE = "registry.example/flights:1"
LABEL = re.compile("[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
NAME = re.compile("[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def documents(job, **options):
    return render("kubernetes", job, image=IMAGE, **options)


def manifests(job, **options):
    return [yaml.safe_load(document.text) for document in documents(job, **options)]


def pod(manifest):
    return manifest["spec"]["template"]["spec"]


def container(manifest):
    (only_container,) = pod(manifest)["containers"]
    return only_container


def started(manifest, index=None):
    """Return the arguments and variables of a pod of a Job, without secrets."""
    known = {}
    for entry in container(manifest)["env"]:
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            assert path == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
            known[entry["name"]] = str(index)
        elif "value" in entry:
            known[entry["name"]] = expand(entry["value"], known)
    return [expand(word, known) for word in container(manifest)["command"]], known


def test_hostile_words_and_values_arrive_unchanged():
    env = {f"V{place}": text for place, text in enumerate(HOSTILE)}
    step = command("x", "program", *HOSTILE, env=env)
    parameters = {f"p {place}": text for place, text in enumerate(HOSTILE)}
    job = make_job(step, parameters=parameters)
    argv, known = started(manifests(job)[0])
    assert argv == ["program", *HOSTILE]
    expected = step_variables(job, step, WorkUnit("x"), 1)
    expected["HYPERPLANE_JOB_FOLDER"] = kubernetes.FOLDER
    assert known == expected


def test_chunks_have_the_same_variables_as_on_this_machine():
    step = command("x", "program", chunks=12, cluster={"nprocs": 1})
    job = make_job(step, parameters={"chunk_id": "no", "a": "$(b) $"}, folder=kubernetes.FOLDER)
    _, known = started(manifests(job)[0], 11)
    expected = step_variables(job, step, WorkUnit("x", 11, 12), 1)
    assert json.loads(known.pop(PARAMETERS)) == json.loads(expected.pop(PARAMETERS))
    assert known.pop("JOB_COMPLETION_INDEX") == "11"
    assert known == {**expected, "HYPERPLANE_CLUSTER": '{"nprocs": 1}'}


@pytest.mark.process
def test_the_program_of_a_pod_gets_its_item(tmp_path):
    items = tuple(text for text in HOSTILE if text)
    see = "import json, os, sys; json.dump([dict(os.environ), sys.argv[1:]], open('seen', 'w'))"
    step = command("x", "python", "-c", see, "$(ITEM)", "it's", foreach=items)
    job = make_job(step, parameters={"item": "no", "a": "b"}, folder=kubernetes.FOLDER)
    manifest = manifests(job)[0]
    for index in (0, 5, len(items) - 1):
        argv, known = started(manifest, index)
        argv = [sys.executable if word == "python" else word for word in argv]
        subprocess.run(argv, env={"PATH": os.environ["PATH"], **known}, cwd=tmp_path, check=True)
        environment, arguments = json.loads((tmp_path / "seen").read_text())
        expected = step_variables(job, step, WorkUnit("x", index, len(items)), 1)
        parameters = json.loads(environment.pop(PARAMETERS))
        assert parameters == json.loads(expected.pop(PARAMETERS))
        assert {name: environment.get(name) for name in expected} == expected
        assert arguments == ["$(ITEM)", "it's"]
        assert item.ITEMS not in environment
    assert (PARAMETERS, f"{PARAMETER_PREFIX}ITEM") == (item._PARAMETERS, item._ITEM)


@pytest.mark.process
@pytest.mark.parametrize(("program", "code"), [("./gone", 127), ("/etc", 126)])
def test_a_program_that_cannot_be_started_ends_as_in_a_shell(program, code):
    settings = {item.ITEMS: '["a"]', PARAMETERS: "{}", "JOB_COMPLETION_INDEX": "0"}
    argv = [sys.executable, "-m", item.__name__, program]
    done = subprocess.run(argv, env={**os.environ, **settings}, capture_output=True, check=False)
    assert done.returncode == code
    assert done.stderr.decode().startswith(f"{program}: ")
    assert classify_failure(code, "") == "input"


def test_manifests_have_the_form_that_kubernetes_requires():
    names = ("$(x)", "größer 🚀", "-", "a" * 128, "A.b_c", "'; x", "0" * 70)
    hostile = [command(name, "true", depends_on=(), chunks=2) for name in names]
    job = make_job(*hostile, name="-Hostile NAME\n" + "x" * 90)
    rendered = [*manifests(job), *manifests(typical())]
    for manifest in rendered:
        assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "Job")
        # Pods of an indexed Job are named with an index and five characters.
        name = manifest["metadata"]["name"]
        assert NAME.fullmatch(name)
        assert len(f"{name}-99999-abcde") <= 63
        labels = manifest["metadata"]["labels"]
        assert labels == manifest["spec"]["template"]["metadata"]["labels"]
        assert all(LABEL.fullmatch(value) for value in labels.values())
        assert all(isinstance(note, str) for note in manifest["metadata"]["annotations"].values())
        names = [entry["name"] for entry in container(manifest)["env"]]
        assert len(set(names)) == len(names)
        assert all(isinstance(entry.get("value", ""), str) for entry in container(manifest)["env"])
        assert all(isinstance(word, str) for word in container(manifest)["command"])
        assert pod(manifest)["restartPolicy"] == "Never"
        assert pod(manifest)["automountServiceAccountToken"] is False
        assert pod(manifest)["securityContext"]["runAsNonRoot"] is True
        closed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container(manifest)["securityContext"] == closed
        assert manifest["spec"]["ttlSecondsAfterFinished"] == 86_400
        assert manifest["spec"]["activeDeadlineSeconds"] == 3600
    assert len({manifest["metadata"]["name"] for manifest in rendered}) == len(rendered)


def test_retries_are_limited_and_input_errors_are_not_retried():
    whole, own, chunks = (
        manifest["spec"]
        for manifest in manifests(
            make_job(
                command("a", "true"),
                command("b", "true", retries=0),
                command("c", "true", chunks=10, max_parallel=4, retries=3),
                max_retries=2,
            )
        )
    )
    assert (whole["backoffLimit"], own["backoffLimit"]) == (2, 0)
    assert "completionMode" not in whole
    assert "backoffLimit" not in chunks
    indexed = ("completionMode", "completions", "parallelism", "backoffLimitPerIndex")
    assert [chunks[name] for name in indexed] == ["Indexed", 10, 4, 3]
    for spec, action in ((whole, "FailJob"), (chunks, "FailIndex")):
        disrupted, ended = spec["podFailurePolicy"]["rules"]
        assert disrupted["action"] == "Ignore"
        assert disrupted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
        codes = ended["onExitCodes"]
        assert (ended["action"], codes["operator"]) == (action, "In")
        assert codes["containerName"] == "step"
        assert codes["values"] == sorted(set(codes["values"]))
        assert {2, 64, 78, 126, 127} <= set(codes["values"])
        assert not {0, 1, 75, 124, 130, 137, 143} & set(codes["values"])


def test_the_timeout_limits_the_pod_and_the_active_timeout_the_job():
    limited, free = manifests(
        make_job(command("a", "true", timeout=0.5), command("b", "true"), active_timeout=-1.0)
    )
    assert pod(limited)["activeDeadlineSeconds"] == 1
    assert "activeDeadlineSeconds" not in pod(free)
    assert "activeDeadlineSeconds" not in limited["spec"]


@pytest.mark.parametrize(
    ("resources", "quantities"),
    [
        (Resources(cores=0.5), {"cpu": "500m"}),
        (Resources(cores=4.03, ram_gb=2.5), {"cpu": "4030m", "memory": "2500000000"}),
        (Resources(pool="16_16"), {"cpu": "15000m", "memory": "12000000000"}),
        (Resources(gpus=2), {"nvidia.com/gpu": "2"}),
        (Resources(), None),
    ],
)
def test_resources_are_requests_and_limits(resources, quantities):
    step_container = container(manifests(make_job(command("a", "true", resources=resources)))[0])
    assert step_container.get("resources") == (
        quantities and {"requests": quantities, "limits": quantities}
    )


def test_secrets_are_references_and_win_over_parameters(monkeypatch):
    monkeypatch.setenv("API_TOKEN", "s3cret")
    step = command("a", "true", secrets=("API_TOKEN", "database/password"))
    (document,) = documents(make_job(step, parameters={"api token": "mine"}))
    assert "s3cret" not in document.text
    variables = container(yaml.safe_load(document.text))["env"]
    references = {
        variable["name"]: variable["valueFrom"]["secretKeyRef"]
        for variable in variables
        if "valueFrom" in variable
    }
    token = {"name": "hyperplane", "key": "API_TOKEN"}
    password = {"name": "database", "key": "password"}
    assert references == {
        "HYPERPLANE_CUSTOM_SECRET_KEY_API_TOKEN": token,
        "API_TOKEN": token,
        "HYPERPLANE_CUSTOM_SECRET_KEY_DATABASE_PASSWORD": password,
        "DATABASE_PASSWORD": password,
    }


def test_steps_with_dependencies_are_suspended_and_annotated():
    last, first = manifests(
        make_job(command("b", "x", depends_on=("a",)), command("a", "x", depends_on=()))
    )
    assert (last["spec"]["suspend"], first["spec"]["suspend"]) == (True, False)
    notes = last["metadata"]["annotations"]
    assert notes["hyperplane.dev/depends-on"] == first["metadata"]["name"]


def test_paths_are_those_of_the_image():
    script = Step(name="a", kind="python", path="a/b.py", working_dir="a")
    note = Step(name="n", kind="notebook", path="n.ipynb", output_path="out.ipynb", chunks=3)
    plain = Step(name="m", kind="notebook", path="n.ipynb")
    job = make_job(script, note, plain)
    rendered = manifests(job, root="/srv/$x")
    assert started(rendered[0])[0] == ["python", "/srv/$x/a/b.py"]
    assert container(rendered[0])["workingDir"] == "/srv/$x/a"
    begin = ["python", "-m", "hyperplane.jobs.notebook", "/srv/$x/n.ipynb"]
    assert started(rendered[1], 2)[0] == [*begin, "/srv/$x/out-2.ipynb"]
    assert started(rendered[2])[0][-1] == f"{kubernetes.FOLDER}/steps/002-m/n.ipynb"
    assert container(manifests(job)[0])["command"][1] == "/data/flights/a/b.py"
