"""The ssh engine without hosts: plans, renderings and faults."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import dask.config
import pytest
import yaml

import hyperplane
from hyperplane.clusters import registry
from hyperplane.spec.request import OMITTED

GOLDEN = Path(__file__).parents[1] / "golden" / "engines" / "ssh.yaml"
HOSTS = {"hosts": ["a", "b"], "python": "/opt/env/bin/python"}


def _plan(**options: Any) -> hyperplane.ClusterPlan:
    given = {"num_workers": 2, "nprocs": 2, "nthreads": 3, "ram_gb_per_proc": 2.4, "name": "mine"}
    return hyperplane.plan_cluster(
        **{"engine": "ssh", "engine_options": HOSTS, "cores_per_worker": 6, **given, **options}
    )


def _rendered(plan: hyperplane.ClusterPlan) -> str:
    text = registry.load("ssh").render(plan)  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


@pytest.mark.process
def test_the_rendering_equals_the_golden_file() -> None:
    found = _rendered(_plan())
    if os.environ.get("HYPERPLANE_WRITE_GOLDEN") == "1":
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


def test_the_rendering_has_what_the_plan_asks() -> None:
    plan = _plan(memory={"pause": 0.75}, scheduler_deploy_mode="local")
    document = yaml.safe_load(_rendered(plan))
    workers = document["workers"]
    assert workers["hosts"] == ["a", "b"]
    assert workers["processes of each"] == 2
    assert workers["options"]["nthreads"] == 3
    assert workers["options"]["memory_limit"] == 2_400_000_000
    assert workers["command"][0] == "/opt/env/bin/python"
    assert document["settings"]["distributed.worker.memory.pause"] == 0.75
    assert document["scheduler"]["host"] == "this machine"
    assert "PRIVATE" not in _rendered(plan)


def test_its_own_python_where_none_is_set() -> None:
    document = yaml.safe_load(_rendered(_plan(engine_options={"hosts": ["a", "b"]})))
    assert document["scheduler"]["command"][0] == sys.executable


@pytest.mark.parametrize(
    ("options", "where", "words"),
    [
        (
            {"engine_options": {}},
            "hyperplane.engines.ssh.hosts",
            "a list of host names or addresses",
        ),
        ({"num_workers": 3}, "num_workers", "at most 2"),
        ({"engine_options": {**HOSTS, "port": 0}}, "engine_options.port", "at least 1"),
        ({"engine_options": {**HOSTS, "security": "no"}}, "engine_options.security", "'tls'"),
    ],
)
def test_a_request_that_its_hosts_cannot_have(options: Any, where: str, words: str) -> None:
    with pytest.raises(hyperplane.RequestError) as caught:
        _plan(**options)
    [fault] = caught.value.faults
    assert fault.where == where
    assert words in fault.allowed


@pytest.mark.parametrize(("nodes", "asked"), [(OMITTED, "2 (the default)"), (2, "2"), (3, "3")])
def test_more_nodes_than_hosts_says_what_to_do(nodes: Any, asked: str) -> None:
    with pytest.raises(hyperplane.RequestError) as caught:
        _plan(num_workers=nodes, engine_options={"hosts": ["a"]})
    [fault] = caught.value.faults
    assert fault.asked == asked
    assert "use num_workers=1, or add hosts" in fault.advice


def test_missing_hosts_are_explained_for_python_and_the_command_line() -> None:
    with pytest.raises(hyperplane.RequestError) as caught:
        _plan(engine_options={})
    [fault] = caught.value.faults
    assert 'engine_options={"hosts": ["a", "b"]}' in fault.advice
    assert "--engine-options 'hosts=[a,b]'" in fault.advice


def test_a_text_for_a_list_is_answered_with_the_form_of_a_list() -> None:
    with pytest.raises(hyperplane.RequestError) as caught:
        _plan(engine_options={"hosts": "a"})
    [fault] = caught.value.faults
    assert fault.where == "engine_options.hosts"
    assert '["a", "b"]' in fault.allowed
    assert "[a,b]" in fault.allowed


def test_available_contacts_no_host() -> None:
    usable, reason = registry.load("ssh").available()
    assert usable
    assert "contacted when a cluster starts" in reason


def test_hosts_of_the_configuration() -> None:
    with dask.config.set({"hyperplane.engines.ssh.hosts": ["x", "y"]}):
        assert _plan(engine_options=None).settings.hosts == ("x", "y")  # type: ignore[attr-defined]


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "asyncssh" else find(name)
    )
    usable, reason = registry.load("ssh").available()
    assert not usable
    assert "pip install 'hyperplane[ssh]'" in reason
    with pytest.raises(hyperplane.EngineUnavailable, match="asyncssh"):
        hyperplane.start(_plan())
