"""Plans of ``ray:kubernetes`` are rendered as resources that KubeRay's definition accepts."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import jsonschema
import pytest
import yaml
from cryptography import x509
from kuberay_cases import IMAGE, plan, rendered, schema
from kubernetes_cases import pruned

import hyperplane
from hyperplane.clusters.ray.kubernetes.engine import KubernetesRayEngine
from hyperplane.clusters.ray.kubernetes.idle import IdleClock, main, read_status
from hyperplane.clusters.ray.kubernetes.render import build_idle_job, render
from hyperplane.clusters.remote_nodes.certificates import CertificateAuthority
from hyperplane.clusters.worker_pods import read_source

GPU_POOL = hyperplane.PoolSpec(
    name="gpu_8",
    alias="gpu",
    cores=8,
    ram_gb=64,
    allocatable_cores=8,
    allocatable_ram_gb=50,
    gpus=4,
)
TEMPLATE = """
metadata: {labels: {team: flights}}
spec:
  containers:
  - {command: [sleep], env: [{name: AIRPORT, value: JFK}], resources: {limits: {a.b/c: 1}}}
  terminationGracePeriodSeconds: 10
"""
CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "without TLS and timeout": {
        "options": {"security": "none", "idle_timeout": None, "keep_alive": True}
    },
    "everything": {
        "num_workers": 3,
        "nprocs": 2,
        "ngpus": 4,
        "pool": GPU_POOL,
        "ram_gb_per_proc": 10,
        "cores_per_worker": 8,
        "scheduler_cpu": "1500m",
        "scheduler_ram": "5Gi",
        "idle_timeout": "10 minutes",
        "worker_spec_yaml": TEMPLATE,
        "options": {
            "image_pull_policy": "Always",
            "image_pull_secrets": ["registry-login"],
            "namespace": "lab",
            "service_account": "ray",
            "node_selector": ["example.com/pool={pool}"],
            "scheduler_node_selector": ["example.com/pool=small"],
            "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}],
            "labels": ["team=flights"],
            "annotations": ["example.com/paid-by=flights, 4th floor"],
            "environ": ["DASHBOARD_METRIC_PORT=8080", "RAY_AUTH_MODE=disabled"],
            "memory_overhead": "100MB",
            "cpu_reserved": 0.5,
            "run_as_user": 1000,
        },
    },
}


def dropped(manifest: dict[str, Any]) -> list[str]:
    """Return the fields of a RayCluster that an API server drops silently."""
    return pruned(manifest["spec"], schema()["properties"]["spec"], ".spec")


@pytest.mark.parametrize("case", CASES)
def test_an_api_server_accepts_it_and_drops_nothing(case: str) -> None:
    found, *jobs = yaml.safe_load_all(render(plan(**CASES[case])))
    assert found == rendered(**CASES[case])
    jsonschema.Draft202012Validator(schema()).validate(found)
    assert dropped(found) == []
    assert [job["kind"] for job in jobs] == [] if "timeout" in case else ["Job"]


def test_the_schema_check_detects_unknown_and_invalid_fields() -> None:
    found = rendered()
    found["spec"]["headGroupSpec"]["template"]["spec"]["nonsense"] = 1
    assert dropped(found) == [".spec.headGroupSpec.template.spec.nonsense"]
    found["spec"]["workerGroupSpecs"][0]["replicas"] = "two"
    with pytest.raises(jsonschema.ValidationError, match="two"):
        jsonschema.Draft202012Validator(schema()).validate(found)


def test_a_worker_node_is_a_pod_with_its_part_of_the_node() -> None:
    found = rendered(num_workers=2, nprocs=3, nthreads=4, cores_per_worker=14, ram_gb_per_proc=8)
    [group] = found["spec"]["workerGroupSpecs"]
    assert group["replicas"] == 6
    # 30 % of 8 GB are for objects, and Ray's own processes have 500 MB beside them.
    assert group["rayStartParams"] == {
        "memory": "5600000000",
        "num-cpus": "4",
        "num-gpus": "0",
        "object-store-memory": "2400000000",
    }
    [container] = group["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "4666m", "memory": "8500002816"}
    assert container["resources"]["requests"] == container["resources"]["limits"]


def test_the_head_runs_no_tasks_and_has_the_requested_size() -> None:
    head = rendered(scheduler_cpu="1500m", scheduler_ram="5GB")["spec"]["headGroupSpec"]
    assert (head["rayStartParams"]["num-cpus"], head["rayStartParams"]["memory"]) == ("0", "0")
    assert head["rayStartParams"]["object-store-memory"] == "1500000000"
    [container] = head["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "1500m", "memory": "5000000000"}
    assert [port["containerPort"] for port in container["ports"]] == [6379, 8265, 10001]


def test_gpus_are_limits_of_each_worker_pod() -> None:
    layout: dict[str, Any] = {
        "nprocs": 2,
        "nthreads": 1,
        "cores_per_worker": 8,
        "pool": GPU_POOL,
        "ngpus": 4,
    }
    [group] = rendered(**layout)["spec"]["workerGroupSpecs"]
    [container] = group["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert group["rayStartParams"]["num-gpus"] == "2"
    with pytest.raises(hyperplane.RequestError, match="a multiple of nprocs = 2"):
        plan(**{**layout, "ngpus": 3})


def test_settings_are_those_of_the_section_kubernetes_with_overrides() -> None:
    section = "hyperplane.engines"
    settings = {
        f"{section}.kubernetes.image": "registry.example/both:1",
        f"{section}.kubernetes.namespace": "lab",
        f"{section}.kubernetes.scheduler_ram": "1Gi",
        f"{section}.kubernetes.node_selector": ["a=b"],
        f"{section}.ray_kubernetes.namespace": "rays",
    }
    with dask.config.set(settings):
        found: Any = hyperplane.plan_cluster(framework="ray", engine="kubernetes").settings
    assert (found.image, found.namespace) == ("registry.example/both:1", "rays")
    assert found.node_selector == ("a=b",)
    assert found.scheduler_ram == "4Gi"  # Ray's own default


def test_all_faults_at_once() -> None:
    with pytest.raises(hyperplane.RequestError) as caught:
        hyperplane.plan_cluster(
            engine="ray:kubernetes",
            name="2" * 54,
            node_selector="no pair",
            scheduler_cpu="many",
            worker_spec_yaml="/no/such/file",
        )
    assert [fault.where for fault in caught.value.faults] == [
        "hyperplane.engines.kubernetes.image",
        "name",
        "node_selector",
        "scheduler_cpu",
        "worker_spec_yaml",
        "name",
    ]


@pytest.mark.parametrize(
    "value", [{"security": "ssl"}, {"dashboard": True}, {"memory_overhead": "x"}]
)
def test_invalid_settings_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(hyperplane.RequestError, match=f"engine_options.{next(iter(value))}"):
        plan(value)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from hyperplane.clusters.ray.kubernetes import engine

    monkeypatch.setattr(engine, "is_installed", lambda name: name != "ray")
    assert "hyperplane[ray]" in KubernetesRayEngine().available().reason
    monkeypatch.setattr(engine, "is_installed", lambda name: name == "ray")
    usable, reason = KubernetesRayEngine().available()
    assert not usable
    assert "kr8s and cryptography: pip install 'hyperplane[kubernetes]'" in reason


def test_only_the_initial_container_sees_the_key_of_the_authority() -> None:
    manifest = rendered()
    groups = [manifest["spec"]["headGroupSpec"], *manifest["spec"]["workerGroupSpecs"]]
    for pod in [group["template"]["spec"] for group in groups]:
        [container], [initial] = pod["containers"], pod["initContainers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {"token", "tls"}
        assert {mount["name"] for mount in initial["volumeMounts"]} == {"authority", "tls"}
        files = {each["name"]: each.get("secret", {}).get("items") for each in pod["volumes"]}
        assert [item["key"] for item in files["token"]] == ["auth_token"]
        variables = {each["name"]: each.get("value") for each in container["env"]}
        assert variables["RAY_AUTH_TOKEN_PATH"] == "/etc/hyperplane/token/auth_token"
        assert "RAY_AUTH_TOKEN" not in variables
        assert not pod["automountServiceAccountToken"]


def test_the_environment_may_add_metrics_but_not_switch_off_the_token() -> None:
    found = rendered({"environ": ["DASHBOARD_METRIC_PORT=8080", "RAY_AUTH_MODE=disabled"]})
    [container] = found["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables["DASHBOARD_METRIC_PORT"] == "8080"
    assert variables["RAY_AUTH_MODE"] == "token"


def test_a_template_adds_to_worker_pods() -> None:
    [group] = rendered(worker_spec_yaml=TEMPLATE)["spec"]["workerGroupSpecs"]
    [container] = group["template"]["spec"]["containers"]
    assert group["template"]["metadata"]["labels"]["team"] == "flights"
    assert "command" not in container  # KubeRay sets it
    assert {"name": "AIRPORT", "value": "JFK"} in container["env"]
    assert container["resources"]["limits"]["a.b/c"] == "1"


def test_a_template_keeps_the_certificate_the_token_and_the_encryption() -> None:
    template = """
containers:
- env:
  - {name: RAY_AUTH_MODE, value: disabled}
  - {name: RAY_AUTH_TOKEN, value: guessed}
  - {name: RAY_USE_TLS, value: "0"}
  - {name: RAY_TLS_CA_CERT, value: /theirs}
  - {name: AIRPORT, value: JFK}
initContainers:
- {name: download, image: busybox}
"""
    [group] = rendered(worker_spec_yaml=template)["spec"]["workerGroupSpecs"]
    pod = group["template"]["spec"]
    assert [each["name"] for each in pod["initContainers"]] == ["certificate", "download"]
    variables = [(each["name"], each["value"]) for each in pod["containers"][0]["env"]]
    found = dict(variables)
    assert len(found) == len(variables)
    assert found["AIRPORT"] == "JFK"
    assert found["RAY_AUTH_MODE"] == "token"
    assert found["RAY_USE_TLS"] == "1"
    assert found["RAY_TLS_CA_CERT"] == "/etc/hyperplane/tls/authority.pem"
    assert "RAY_AUTH_TOKEN" not in found


def test_a_template_cannot_replace_the_certificate_or_the_token() -> None:
    template = """
spec:
  initContainers:
  - {name: download, image: busybox}
  - {name: certificate, image: theirs}
  volumes: [{name: tls, emptyDir: {}}, {name: data, emptyDir: {}}, {name: token, emptyDir: {}}]
  containers:
  - volumeMounts:
    - {name: data, mountPath: /data}
    - {name: data, mountPath: /etc/hyperplane/tls/}
    - {name: data, mountPath: /etc/hyperplane}
    - {name: data, mountPath: /etc/hyperplane/token/auth_token}
"""
    with pytest.raises(hyperplane.RequestError) as caught:
        plan(worker_spec_yaml=template)
    assert {each.where for each in caught.value.faults} == {"worker_spec_yaml"}
    assert [each.asked for each in caught.value.faults] == [
        "initContainers[1].name = 'certificate'",
        "volumes[0].name = 'tls'",
        "volumes[2].name = 'token'",
        "containers[0].volumeMounts[1].mountPath = '/etc/hyperplane/tls'",
        "containers[0].volumeMounts[2].mountPath = '/etc/hyperplane'",
        "containers[0].volumeMounts[3].mountPath = '/etc/hyperplane/token/auth_token'",
    ]
    with pytest.raises(hyperplane.RequestError) as caught:
        plan({"security": "none"}, worker_spec_yaml=template)
    assert len(caught.value.faults) == 3  # only those of the token


def test_a_key_of_a_template_without_a_value_removes_nothing() -> None:
    template = "initContainers:\nvolumes:\ncontainers: [{env: }]\n"
    [found], [ours] = (
        each["spec"]["workerGroupSpecs"]
        for each in (rendered(worker_spec_yaml=template), rendered())
    )
    for group in (found, ours):
        group["template"]["spec"]["containers"][0]["env"].sort(key=lambda each: each["name"])
    assert found == ours
    with pytest.raises(hyperplane.RequestError, match=r"metadata\.labels must be a mapping"):
        plan(worker_spec_yaml="metadata: {labels: [a]}\nspec: {}\n")


def test_labels_and_annotations_reach_all_pods() -> None:
    case = CASES["everything"]
    spec = rendered(**case)["spec"]
    job = build_idle_job(plan(**case))
    assert job is not None
    for template in (
        spec["headGroupSpec"]["template"],
        spec["workerGroupSpecs"][0]["template"],
        job["spec"]["template"],
    ):
        wanted = {"team": "flights", "hyperplane.dev/pool": "gpu_8"}
        assert wanted.items() <= template["metadata"]["labels"].items()
        assert template["metadata"]["annotations"] == {"example.com/paid-by": "flights, 4th floor"}


def test_the_head_has_no_page_of_metrics() -> None:
    head, [group] = (rendered()["spec"][key] for key in ("headGroupSpec", "workerGroupSpecs"))
    assert head["rayStartParams"]["no-monitor"] == "true"  # a flag, for KubeRay
    assert "no-monitor" not in group["rayStartParams"]


@pytest.mark.process
def test_the_program_of_the_initial_container_writes_a_certificate_for_the_pod(
    tmp_path: Path,
) -> None:
    pod = rendered()["spec"]["headGroupSpec"]["template"]["spec"]
    [initial] = pod["initContainers"]
    certificate, key = CertificateAuthority().export()
    authority, folder = tmp_path / "authority", tmp_path / "tls"
    authority.mkdir()
    folder.mkdir()
    (authority / "ca.crt").write_bytes(certificate)
    (authority / "ca.key").write_bytes(key)
    values = {
        "/etc/hyperplane/authority": str(authority),
        "/etc/hyperplane/tls": str(folder),
        "$(POD_IP)": "10.1.2.3",
        "$(FQ_RAY_IP)": "flights-head-svc.lab.svc.cluster.local",
    }
    _, flag, source, *words = initial["command"]
    source = source.replace("$$", "$")  # as Kubernetes does
    assert source == read_source("hyperplane.clusters.remote_nodes", "certificates.py")
    words = [values.get(word, word.replace("$(POD_NAMESPACE)", "lab")) for word in words]
    # Without this package, as in the image; -I ignores the environment.
    subprocess.run([sys.executable, "-I", flag, source, *words], cwd=tmp_path, check=True)
    issued = x509.load_pem_x509_certificate((folder / "certificate.pem").read_bytes())
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "flights-head-svc",
        "flights-head-svc.lab",
        "flights-head-svc.lab.svc",
        "localhost",
        "flights-head-svc.lab.svc.cluster.local",
    ]
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    assert list(addresses) == ["10.1.2.3", "127.0.0.1"]
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(certificate))
    assert (folder / "key.pem").stat().st_mode & 0o777 == 0o600


def test_the_job_owns_nothing_but_time() -> None:
    job = build_idle_job(plan(idle_timeout=90, timeout=600))
    assert job is not None
    assert job["spec"]["ttlSecondsAfterFinished"] == 0
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"][-3:] == ["flights-head-svc:6379", "90", "600"]
    assert pod["restartPolicy"] == "OnFailure"
    # KubeRay must not count it as a pod of the cluster.
    assert "ray.io/cluster" not in job["spec"]["template"]["metadata"]["labels"]
    assert build_idle_job(plan({"idle_timeout": None, "keep_alive": True})) is None
    leased = build_idle_job(plan({"idle_timeout": None}))
    assert leased is not None, "the Job holds the lease"
    [container] = leased["spec"]["template"]["spec"]["containers"]
    assert float(container["command"][-2]) >= 1e9, "the cluster is never idle for too long"


@pytest.mark.parametrize(
    ("answers", "ends"),
    [
        # time, worker nodes, idle seconds
        ([(0, 0, 0.0), (650, 0, 0.0)], False),  # no worker node yet: until 600 + 90 s
        ([(0, 0, 0.0), (691, 0, 650.0)], True),
        ([(10, 2, 0.0), (99, 2, 80.0)], False),
        ([(10, 2, 0.0), (101, 2, 91.0)], True),
        ([(10, 2, 0.0), (200, 2, 5.0)], False),
        ([(10, 2, 0.0), (200, 0, 5.0)], False),  # its worker nodes restart
        ([(10, 2, 0.0), (50, None, None), (99, None, None)], False),
        ([(10, 2, 0.0), (50, None, None), (101, None, None)], True),  # the head has ended
        ([(0, None, None), (691, None, None)], True),  # the head has never started
        # A busy head without worker nodes: the time of the start remains.
        ([(0, None, 0.0), (10, None, 0.0), (200, 0, 200.0), (689, 0, 200.0)], False),
        ([(10, 2, 0.0), (99, None, 0.0), (150, None, None)], False),  # a busy head was used
    ],
)
def test_a_cluster_ends_after_its_timeout(
    answers: list[tuple[float, int | None, float | None]], ends: bool
) -> None:
    clock = IdleClock(90, 600, 0)
    *before, last = [clock.update(*answer) for answer in answers]
    assert not any(before)
    assert last is ends


def answered(monkeypatch: pytest.MonkeyPatch, answer: Any) -> Any:
    """Return what is read if Ray's module returns an answer, or raises it."""

    def get_cluster_status(address: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    module = SimpleNamespace(get_cluster_status=get_cluster_status)
    monkeypatch.setitem(sys.modules, "ray.autoscaler.v2.sdk", module)
    with socket.create_server(("127.0.0.1", 0)) as head:
        return read_status(f"127.0.0.1:{head.getsockname()[1]}")


def test_the_status_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def node(idle: int | None) -> Any:
        usage = None if idle is None else SimpleNamespace(idle_time_ms=idle)
        return SimpleNamespace(resource_usage=usage)

    def status(*idle: int | None, tasks: int = 0, groups: int = 0) -> Any:
        demands = {"ray_task_actor_demand": [1] * tasks, "placement_group_demand": [1] * groups}
        return SimpleNamespace(
            active_nodes=[node(each) for each in idle if not each],
            idle_nodes=[node(each) for each in idle if each],
            resource_demands=SimpleNamespace(**demands),
        )

    assert answered(monkeypatch, status()) == (0, 0.0)  # not even the head is registered
    assert answered(monkeypatch, status(9000)) == (0, 9.0)
    assert answered(monkeypatch, status(9000, 5000, 7000)) == (2, 5.0)
    assert answered(monkeypatch, status(9000, 0)) == (1, 0.0)
    assert answered(monkeypatch, status(9000, None)) == (1, 0.0)
    assert answered(monkeypatch, status(9000, 5000, tasks=1)) == (1, 0.0)
    assert answered(monkeypatch, status(9000, 5000, groups=1)) == (1, 0.0)
    # A head that accepts connections is busy, and may still start.
    assert answered(monkeypatch, TimeoutError("no answer")) == (None, 0.0)
    with socket.create_server(("127.0.0.1", 0)) as head:
        closed = f"127.0.0.1:{head.getsockname()[1]}"
    assert read_status(closed) == (None, None)


def test_the_program_of_the_job_returns_when_the_cluster_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    answers = iter([(1, 0.0), (1, 0.0), *[(1, 9.0)] * 100])
    main("head:6379", "0.2", "60", lambda address: next(answers))
    assert "idle for too long" in capsys.readouterr().out
    token.unlink()
    main("head:6379", "0.1", "0.1", lambda address: (1, 0.0))  # nothing is asked without it


def test_the_image_is_that_of_the_settings() -> None:
    text = render(plan())
    assert text.count(IMAGE) == 5  # two pods with two containers, and the Job
