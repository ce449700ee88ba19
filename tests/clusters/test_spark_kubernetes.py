"""The script of the engine ``spark:kubernetes``, which spark-submit sends to a test server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

import hyperplane
from hyperplane.clusters import registry
from hyperplane.errors import EngineUnavailable, RequestError

ENGINE = "spark:kubernetes"
OPTIONS: dict[str, Any] = {
    "image": "registry.example/spark:3.5",
    "service_account": "driver",
    "tolerations": [{"key": "spark", "operator": "Exists"}],
    "node_selector": ["disk=ssd", "size={pool}"],
    "labels": ["team=flights"],
    "environ": ["LINES=one\nEND\nspark.master=local \\ two", "LEVEL=a=b$(HOME)"],
    "driver_ram": "2Gi",
    "properties": {
        "spark.sql.shuffle.partitions": 7,
        "spark.kubernetes.submission.waitAppCompletion": False,
    },
}
LAYOUT: dict[str, Any] = {
    "num_workers": 2,
    "nprocs": 2,
    "nthreads": 3,
    "cores_per_worker": 7,
    "ram_gb_per_proc": 4,
}


def make_plan(**options: Any) -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(engine=ENGINE, engine_options={**OPTIONS, **options}, **LAYOUT)


def render(plan: hyperplane.ClusterPlan) -> str:
    engine: Any = registry.load(ENGINE)
    text: str = engine.render(plan)
    return text


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of kubectl; a test writes its own."""
    file = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(file))
    return file


def write_kubeconfig(file: Path, **servers: str) -> None:
    """Write one context for each server; the first one is the current one."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(servers)),
        "contexts": [
            {"name": name, "context": {"cluster": f"its-{name}", "user": "u", "namespace": name}}
            for name in servers
        ],
        "clusters": [
            {"name": f"its-{name}", "cluster": {"server": server}}
            for name, server in servers.items()
        ],
        "users": [{"name": "u", "user": {}}],
    }
    file.write_text(yaml.safe_dump(content))


def read_properties(script: str) -> dict[str, str]:
    text = script.partition("spark.properties\" <<'END'\n")[2].partition("\nEND\n")[0]
    return dict(line.split("=", 1) for line in text.splitlines())


def test_executors_have_the_size_of_the_plan(kubeconfig: Path) -> None:
    properties = read_properties(render(make_plan()))
    expected = {
        "spark.executor.instances": "4",
        "spark.executor.cores": "3",
        "spark.kubernetes.executor.request.cores": "3500m",
        "spark.kubernetes.executor.limit.cores": "3500m",
        "spark.executor.memory": "3430m",
        "spark.executor.memoryOverhead": "384m",
        "spark.driver.memory": "1664m",
        "spark.driver.memoryOverhead": "384m",
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.sql.shuffle.partitions": "7",
        "spark.kubernetes.executor.node.selector.disk": "ssd",
        "spark.kubernetes.driver.node.selector.disk": "ssd",
        "spark.executorEnv.LINES": r"one\nEND\nspark.master=local \\ two",
    }
    assert properties.items() >= expected.items()
    assert "spark.kubernetes.driver.node.selector.size" not in properties


@pytest.mark.parametrize(
    ("servers", "options", "master", "namespace"),
    [
        ({}, {}, "https://kubernetes.default.svc", None),
        ({}, {"namespace": "mine"}, "https://kubernetes.default.svc", "mine"),
        ({"one": "https://one:6443", "two": "https://two"}, {}, "https://one:6443", "one"),
        ({"one": "https://one", "two": "https://two"}, {"context": "two"}, "https://two", "two"),
        ({"one": "https://one"}, {"namespace": "mine"}, "https://one", "mine"),
    ],
)
def test_the_server_is_that_of_kubectl(
    kubeconfig: Path,
    servers: dict[str, str],
    options: dict[str, Any],
    master: str,
    namespace: str | None,
) -> None:
    if servers:
        write_kubeconfig(kubeconfig, **servers)
    properties = read_properties(render(make_plan(**options)))
    assert properties["spark.master"] == f"k8s://{master}"
    assert properties.get("spark.kubernetes.namespace") == namespace
    expected = options.get("context") or next(iter(servers), None)
    assert properties.get("spark.kubernetes.context") == expected


def test_all_faults_are_in_one_message(kubeconfig: Path) -> None:
    with pytest.raises(RequestError) as caught:
        make_plan(image=None, driver_ram="500MB")
    assert [fault.where.rpartition(".")[2] for fault in caught.value.faults] == [
        "image",
        "driver_ram",
    ]
    with pytest.raises(RequestError, match=r"ngpus = 1: expected 0: engine spark:kubernetes has"):
        hyperplane.plan_cluster(engine=ENGINE, engine_options=OPTIONS, **LAYOUT, ngpus=1)


def test_an_unknown_context_is_refused(kubeconfig: Path) -> None:
    write_kubeconfig(kubeconfig, one="https://one")
    with pytest.raises(RequestError, match=r"context = 'none': expected a context of kubectl"):
        make_plan(context="none")


def test_properties_of_the_plan_are_not_replaced_silently(kubeconfig: Path) -> None:
    write_kubeconfig(kubeconfig, one="https://one")
    every = {"image_pull_policy": "Always", "image_pull_secrets": ["pull"], "namespace": "mine"}
    properties = read_properties(render(make_plan(properties={}, context="one", **every)))
    mapped = re.compile(
        r"spark\.kubernetes\.(driver|executor)\.(label|annotation|node\.selector)\."
        r"|spark\.(kubernetes\.driverEnv|executorEnv)\."
    )
    own = [key for key in properties if not mapped.match(key)]
    assert len(own) > 25
    for key in own:
        with pytest.raises(RequestError) as caught:
            make_plan(properties={key: "x"})
        assert key in str(caught.value)


def test_no_cluster_starts(kubeconfig: Path) -> None:
    plan = make_plan()
    for call in (
        lambda: hyperplane.start(plan),
        lambda: hyperplane.get_cluster("flights", engine=ENGINE),
    ):
        with pytest.raises(EngineUnavailable, match="prints a script that submits a program"):
            call()


class _Server(BaseHTTPRequestHandler):
    """An API server that accepts every object, and keeps it."""

    protocol_version = "HTTP/1.1"
    seen: list[dict[str, Any]]

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command == "GET":
            answer: dict[str, Any] = {"kind": "Status", "status": "Failure", "code": 404}
        else:
            answer = json.loads(body)
            self.seen.append(json.loads(body))
            answer.setdefault("metadata", {})["uid"] = "1"
        data = json.dumps(answer).encode()
        self.send_response(404 if self.command == "GET" else 201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = _answer  # noqa: N815 - names of the base class

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the base class
        del format, args


@pytest.fixture
def objects(kubeconfig: Path) -> Iterator[list[dict[str, Any]]]:
    """Objects that were sent to the API server of kubectl's configuration."""
    seen: list[dict[str, Any]] = []
    handler = type("_Recording", (_Server,), {"seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        write_kubeconfig(kubeconfig, programs=f"http://127.0.0.1:{server.server_port}")
        yield seen
        server.shutdown()
        thread.join()


@pytest.mark.spark
@pytest.mark.process
def test_spark_submit_creates_the_driver_of_the_plan(
    objects: list[dict[str, Any]], tmp_path: Path
) -> None:
    from hyperplane.clusters.spark import installation

    script, temporary = tmp_path / "submit.sh", tmp_path / "temporary"
    script.write_text(render(make_plan()))
    temporary.mkdir()
    folders = [str(installation.find_home() / "bin"), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(folders), "TMPDIR": str(temporary)}

    def submit(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(script), *arguments], env=environment,
            capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip

    refused = submit()
    assert (refused.returncode, objects) == (64, [])
    assert refused.stderr.startswith("usage: bash ")
    done = submit("local:///srv/flights/late.py", "--year", "2013 $HOME")
    assert done.returncode == 0, done.stderr
    assert list(temporary.iterdir()) == []
    [pod] = [each for each in objects if each["kind"] == "Pod"]
    [container] = pod["spec"]["containers"]
    words = container["args"]
    assert words[-3:] == ["local:///srv/flights/late.py", "--year", "2013 $HOME"]
    assert container["image"] == OPTIONS["image"]
    assert container["resources"]["limits"] == {"cpu": "1000m", "memory": "2048Mi"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["serviceAccountName"] == "driver"
    assert pod["spec"]["automountServiceAccountToken"] is True
    assert pod["spec"]["tolerations"] == OPTIONS["tolerations"]
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert pod["metadata"]["labels"]["team"] == "flights"
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["LINES"] == "one\nEND\nspark.master=local \\ two"
    assert variables["LEVEL"] == "a=b$$(HOME)"  # Kubernetes itself expands $(HOME)
    data = [each["data"] for each in objects if each["kind"] == "ConfigMap"]
    [template] = [yaml.safe_load(each["podspec-configmap-key"]) for each in data if len(each) == 1]
    assert template["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in template["spec"]
    [sent] = [each["spark.properties"] for each in data if "spark.properties" in each]
    assert "\nspark.executor.instances=4\n" in sent
    assert "\nspark.sql.shuffle.partitions=7\n" in sent
