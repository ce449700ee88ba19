"""Invalid requests are refused with all their faults before anything is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.config
import pytest
from hypothesis import given, strategies
from kubernetes_cases import IMAGE, plan, worker

import hyperplane
from hyperplane.platforms.kubernetes.pod_template import (
    merge_template,
    parse_selector,
    read_template,
)
from hyperplane.spec.settings.kubernetes import KubernetesSettings, millicores


def faults_of(options: dict[str, Any] | None = None, **arguments: Any) -> set[str]:
    with pytest.raises(hyperplane.RequestError) as caught:
        plan(options, **arguments)
    return {fault.where for fault in caught.value.faults}


def test_all_faults_at_once() -> None:
    with pytest.raises(hyperplane.RequestError) as caught:
        hyperplane.plan_cluster(
            engine="kubernetes",
            name="n" * 54,
            node_selector="no pair",
            scheduler_cpu="many",
            worker_spec_yaml="/no/such/file",
        )
    assert {fault.where for fault in caught.value.faults} == {
        "hyperplane.engines.kubernetes.image",
        "name",
        "node_selector",
        "scheduler_cpu",
        "worker_spec_yaml",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("image", "a b"),
        ("image", "a\nb"),
        ("image", ""),
        ("image_pull_policy", "Sometimes"),
        ("image_pull_secrets", ["No Name"]),
        ("namespace", "a/b"),
        ("service_account", "x\ny"),
        ("node_selector", {"a": "b"}),
        ("node_selector", ["a"]),
        ("node_selector", ["a={pool.__class__}"]),
        ("scheduler_node_selector", ["a={pool}"]),
        ("tolerations", [{"key": "a", "effect": "Never"}]),
        ("tolerations", [{"keys": "a"}]),
        ("labels", ["a=b c"]),
        ("labels", ["a\n=b"]),
        ("annotations", ["a=b\nc"]),
        ("environ", ["A-B=1"]),
        ("scheduler_cpu", "1.5 cores"),
        ("scheduler_cpu", -1),
        ("scheduler_ram", "4 apples"),
        ("memory_overhead", "-1Mi"),
        ("cpu_reserved", 0),
        ("cpu_reserved", 1.5),
        ("run_as_user", -1),
        ("port_forward", "sometimes"),
        ("security", "ssl"),
        ("imagee", "x"),
    ],
)
def test_invalid_settings_are_refused(name: str, value: Any) -> None:
    [where] = faults_of({name: value})
    assert where.startswith(f"engine_options.{name}")


def test_settings_are_those_of_the_configuration() -> None:
    section = "hyperplane.engines.kubernetes"
    with dask.config.set({f"{section}.image": IMAGE, f"{section}.labels": ["a.b/c-d=e"]}):
        found = hyperplane.plan_cluster(engine="kubernetes").settings
    assert isinstance(found, KubernetesSettings)
    assert (found.image, found.labels) == (IMAGE, ("a.b/c-d=e",))
    assert KubernetesSettings(**found.model_dump()) == found


@given(strategies.integers(1, 10**6))
def test_millicores_of_text_and_of_numbers_are_the_same(number: int) -> None:
    assert millicores(f"{number}m") == millicores(number / 1000) == number


@given(
    strategies.dictionaries(
        strategies.from_regex(r"[a-z]([a-z0-9.]{0,8}/)?[a-z0-9]{1,5}", fullmatch=True),
        strategies.from_regex(r"[A-Za-z0-9]{0,6}", fullmatch=True),
    )
)
def test_a_selector_as_text_is_the_selector(labels: dict[str, str]) -> None:
    text = ",".join(f"{key}={value}" for key, value in labels.items())
    assert parse_selector(text) == parse_selector(labels) == labels


def test_a_template_is_a_file_or_a_text_a_pod_or_its_spec(tmp_path: Path) -> None:
    spec = "containers: [{env: [{name: A, value: b}]}]\nterminationGracePeriodSeconds: 5\n"
    pod = "apiVersion: v1\nkind: Pod\nspec:\n" + "".join(
        f"  {line}\n" for line in spec.splitlines()
    )
    file = tmp_path / "pod.yaml"
    file.write_text(pod, encoding="utf-8")
    expected = {
        "metadata": {},
        "spec": {
            "containers": [{"env": [{"name": "A", "value": "b"}]}],
            "terminationGracePeriodSeconds": 5,
        },
    }
    assert read_template(spec) == read_template(pod) == read_template(str(file)) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kind: Deployment\nspec: {}", "Deployment, not a Pod"),
        ("- a\n- b", "not a mapping"),
        ("spec: 3\n", "mappings"),
        ("containers: []\n", "is empty"),
        ("containers: [a]\n", "list of mappings"),
        ("a: &x {b: 1}\nc: *x\n", "aliases"),
        ("a: 1\na: 2\n", "duplicate key"),
        ("a: " + "[" * 40 + "]" * 40 + "\n", "deeper"),
        ("a: !!python/object/apply:os.getcwd []\n", "python/object"),
        ("a: [\n", "worker_spec_yaml"),
        ("x: " + "y" * 2**20 + "\n", "larger"),
    ],
)
def test_invalid_templates_are_refused(text: str, reason: str) -> None:
    with pytest.raises(hyperplane.RequestError, match=reason) as caught:
        read_template(text)
    assert len(str(caught.value)) < 1000


def test_a_template_adds_and_the_plan_decides() -> None:
    ours = worker({"environ": ["A=ours", "B=ours"], "tolerations": [{"key": "a"}]}, nthreads=1)
    theirs = read_template(
        "tolerations: [{key: b}]\nnodeSelector: {disk: ssd}\nrestartPolicy: Never\n"
        "containers:\n"
        "- {name: main, command: [sleep], args: [x], image: other, env: [{name: A, value: theirs}],"
        " resources: {requests: {cpu: 9}, limits: {memory: 9Gi, a.b/c: 1}}}\n"
        "- {name: beside, image: helper}\n"
    )["spec"]
    found = merge_template(ours, theirs)
    first, second = found["containers"]
    assert first["args"] == ours["containers"][0]["args"]
    assert (first["name"], first["image"]) == ("worker", "other")
    assert "command" not in first
    assert "restartPolicy" not in found
    env = {one["name"]: one["value"] for one in first["env"]}
    assert (env["A"], env["B"]) == ("theirs", "ours")
    mine = ours["containers"][0]["resources"]
    assert first["resources"]["requests"] == mine["requests"]
    assert first["resources"]["limits"] == {**mine["limits"], "a.b/c": "1"}
    assert second == {"name": "beside", "image": "helper"}
    assert [one["key"] for one in found["tolerations"]] == ["a", "b"]
    assert found["nodeSelector"] == {"disk": "ssd"}
    assert found["volumes"] == ours["volumes"]


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from hyperplane.clusters.dask.kubernetes import engine

    monkeypatch.setattr(engine, "is_installed", lambda name: False)
    usable, reason = engine.KubernetesEngine().available()
    assert not usable
    assert "hyperplane[kubernetes]" in reason
    monkeypatch.setattr(engine, "is_installed", lambda name: True)
    usable, reason = engine.KubernetesEngine().available()
    assert usable
    assert "Kubernetes is contacted when a cluster starts" in reason


def test_without_an_image_both_ways_to_set_one_are_named() -> None:
    with pytest.raises(hyperplane.RequestError) as caught:
        hyperplane.plan_cluster(engine="kubernetes")
    [fault] = caught.value.faults
    assert 'engine_options={"image": ' in fault.advice
    assert "--engine-options image=" in fault.advice
