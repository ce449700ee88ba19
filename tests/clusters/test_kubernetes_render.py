"""A plan is rendered as the expected resource, which an API server accepts.

``HYPERPLANE_WRITE_GOLDEN=1 pytest tests/clusters/test_kubernetes_render.py`` writes golden files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dask.config
import jsonschema
import pytest
import yaml
from kubernetes_cases import plan, pruned, rendered, schema, worker

import hyperplane
from hyperplane.clusters.dask.kubernetes.engine import KubernetesEngine
from hyperplane.clusters.dask.kubernetes.render import render

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "engines"
TEMPLATE = """
metadata:
  labels: {team: flights}
spec:
  containers:
  - args: [dask-worker, --nthreads, "99"]
    env: [{name: AIRPORT, value: JFK}]
    resources: {limits: {memory: 900Gi, example.com/fpga: 1}}
    volumeMounts: [{name: data, mountPath: /data, readOnly: true}]
  volumes: [{name: data, hostPath: {path: /srv/data}}]
  terminationGracePeriodSeconds: 10
"""
GPU_POOL = hyperplane.PoolSpec(
    name="gpu_8",
    alias="gpu",
    cores=8,
    ram_gb=64,
    allocatable_cores=8,
    allocatable_ram_gb=50,
    gpus=4,
)
CASES: dict[str, dict[str, Any]] = {
    "kubernetes": {"num_workers": 2, "nprocs": 5, "nthreads": 3, "ram_gb_per_proc": 2.4},
    "kubernetes_everything": {
        "num_workers": 3,
        "nprocs": 2,
        "nthreads": 4,
        "ram_gb_per_proc": 10,
        "cores_per_worker": 8,
        "ngpus": 2,
        "pool": GPU_POOL,
        "scheduler_cpu": "1500m",
        "scheduler_ram": "4Gi",
        "idle_timeout": "10 minutes",
        "memory": hyperplane.MemoryPolicy(terminate=False),
        "worker_spec_yaml": TEMPLATE,
        "options": {
            "image_pull_policy": "Always",
            "image_pull_secrets": ["registry-login"],
            "namespace": "lab",
            "service_account": "dask",
            "node_selector": ["example.com/pool={pool}", "example.com/size={alias}"],
            "scheduler_node_selector": ["example.com/pool=small"],
            "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}],
            "labels": ["team=flights"],
            "annotations": ["example.com/paid-by=flights, 4th floor"],
            "environ": ["HTTPS_PROXY=http://proxy.example:3128"],
            "memory_overhead": "128Mi",
            "cpu_reserved": 0.5,
            "run_as_user": 1000,
            "security": "none",
        },
    },
}


@pytest.mark.parametrize("case", CASES)
def test_rendered_files_equal_the_expected_ones(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    text = render(plan(**CASES[case]))
    file = GOLDEN / f"{case}.yaml"
    if os.environ.get("HYPERPLANE_WRITE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_an_api_server_accepts_it_and_drops_nothing(case: str) -> None:
    found = yaml.safe_load(render(plan(**CASES[case])))
    assert found == rendered(**CASES[case])
    jsonschema.Draft202012Validator(schema()).validate(found)
    assert pruned(found, schema()) == []


def test_the_schema_check_detects_unknown_and_invalid_fields() -> None:
    found = rendered(**CASES["kubernetes"])
    found["spec"]["worker"]["spec"]["containers"][0]["nonsense"] = 1
    assert pruned(found, schema()) == [".spec.worker.spec.containers[].nonsense"]
    found["spec"]["worker"]["replicas"] = "two"
    with pytest.raises(jsonschema.ValidationError, match="two"):
        jsonschema.Draft202012Validator(schema()).validate(found)


def test_the_command_renders_without_contacting_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    cluster_plan = plan(**CASES["kubernetes"])
    assert KubernetesEngine().render(cluster_plan) == render(cluster_plan)


def test_a_process_is_a_pod_and_has_its_part_of_the_node() -> None:
    found = rendered(num_workers=2, nprocs=7, nthreads=2, ram_gb_per_proc=1.5, cores_per_worker=15)
    assert found["spec"]["worker"]["replicas"] == 14
    [container] = found["spec"]["worker"]["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    # 15 cores / 7, rounded down so that seven fit; whole pages, rounded up.
    assert container["resources"]["limits"] == {"cpu": "2142m", "memory": "1500000256"}
    args = container["args"]
    assert args[:2] == ["dask", "worker"]
    assert args[args.index("--nworkers") + 1] == "1"
    assert args[args.index("--nthreads") + 1] == "2"
    assert args[args.index("--memory-limit") + 1] == "1500000000"


def test_a_pod_of_dask_cuda_runs_on_each_gpu() -> None:
    layout = {"num_workers": 1, "nprocs": 2, "nthreads": 1, "ram_gb_per_proc": 4, "pool": GPU_POOL}
    [container] = worker(**layout, ngpus=4)["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["args"][:3] == ["dask", "cuda", "worker"]
    assert "--nworkers" not in container["args"]
    asked = plan(**layout, ngpus=4)
    assert asked.dask_workers == 4
    assert "one worker process runs on each GPU" in asked.fit_note
    [container] = worker(**layout)["containers"]
    assert container["args"][:2] == ["dask", "worker"]
    assert "--nworkers" in container["args"]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, {"pool": "16_16"}),
        ({}, None),
        ("", None),
        ({"disk": "ssd"}, {"disk": "ssd"}),
        ("disk=ssd, example.com/zone=a", {"disk": "ssd", "example.com/zone": "a"}),
    ],
)
def test_node_selector(asked: Any, expected: dict[str, str] | None) -> None:
    pod = worker({"node_selector": ["pool={pool}"]}, node_selector=asked)
    assert pod.get("nodeSelector") == expected


def test_settings_of_dask_of_the_user_reach_the_pods() -> None:
    with dask.config.set({"distributed.scheduler.worker-ttl": "45s"}):
        [container] = worker()["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL" not in variables  # theirs is in the image
    assert variables["DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT"] == "300s"
    assert variables["DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE"] == "0.95"
    assert variables["DASK_SCHEDULER_ADDRESS"] == "tls://flights-scheduler:8786"


def test_the_resource_contains_no_key_and_no_reference_to_a_variable() -> None:
    text = render(plan({"environ": ["PRICE=$(HOME) $5"]}))
    assert "PRIVATE KEY" not in text
    assert 'value: "$$(HOME) $$5"' in text
    assert text.count("$(") - text.count("$$(") == 1  # the name that the operator sets


def test_pods_may_do_nothing_that_work_does_not_need() -> None:
    for role in ("scheduler", "worker"):
        pod = rendered()["spec"][role]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        [container] = pod["containers"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_without_tls_there_is_no_secret_and_the_operator_gives_the_address() -> None:
    text = render(plan({"security": "none"}))
    assert "tls" not in text.replace("tls-", "").lower()
    assert "DASK_SCHEDULER_ADDRESS" not in text


def test_idle_timeout_is_whole_seconds_and_never_by_default_zero() -> None:
    assert rendered()["spec"]["idleTimeout"] == 1800
    assert rendered(idle_timeout=90.2)["spec"]["idleTimeout"] == 91
    # The operator ends a cluster whose lease has expired only if it has an idle timeout.
    assert rendered({"idle_timeout": None})["spec"]["idleTimeout"] == 1e9
    alone = {"idle_timeout": None, "keep_alive": True}
    assert rendered(alone)["spec"]["idleTimeout"] == 0
