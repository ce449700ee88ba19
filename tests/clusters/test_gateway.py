"""The gateway engine without a server: plans, renderings, options and faults."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import dask.config
import pytest
import yaml
from dask_gateway.options import Float, Integer, Mapping, Options, Select, String

import hyperplane
from hyperplane import RequestError
from hyperplane.clusters import registry
from hyperplane.clusters.dask.gateway import options as gateway_options
from hyperplane.clusters.dask.gateway.engine import GatewayEngine

GOLDEN = Path(__file__).parents[1] / "golden" / "engines"
WHERE = {
    "address": "https://gateway.example",
    "proxy_address": "gateway://gateway.example:8786",
    "auth": "basic",
    "username": "ada",
    "password_variable": "GATEWAY_PASSWORD",
}
ALL = {
    "worker_cores": "nthreads",
    "worker_memory": "ram_gib",
    "scheduler_cores": "scheduler_cpu",
    "scheduler_memory": "scheduler_ram_gb",
    "environment": "environment",
    "idle": "idle_timeout",
}


def _plan(engine_options: dict[str, Any] | None = None, **options: Any) -> hyperplane.ClusterPlan:
    given = {"num_workers": 2, "nprocs": 2, "nthreads": 3, "ram_gb_per_proc": 2.4, "name": "mine"}
    where = {**WHERE, **(engine_options or {})}
    return hyperplane.plan_cluster(
        **{"engine": "gateway", "engine_options": where, "cores_per_worker": 6, **given, **options}
    )


def _rendered(plan: hyperplane.ClusterPlan) -> str:
    text = registry.load("gateway").render(plan)  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("name", ["gateway", "gateway_all_options"])
def test_the_rendering_equals_the_golden_file(name: str) -> None:
    plan = _plan()
    if name == "gateway_all_options":
        more = {"plan_options": ALL, "options": {"image": "registry.example/flights:1"}}
        plan = _plan(more, scheduler_cpu="1500m", scheduler_ram="4Gi", memory={"pause": 0.75})
    found, file = _rendered(plan), GOLDEN / f"{name}.yaml"
    if os.environ.get("HYPERPLANE_WRITE_GOLDEN") == "1":
        file.write_text(found)
    assert found == file.read_text()


@pytest.mark.parametrize(
    ("unit", "value"), [("gib", 2.4e9 / 2**30), ("gb", 2.4), ("bytes", 2_400_000_000)]
)
def test_memory_is_requested_in_the_unit_of_the_option(unit: str, value: float) -> None:
    plan_options = {"cores": "nthreads", "memory": f"ram_{unit}"}
    asked = gateway_options.requested_options(_plan({"plan_options": plan_options}))
    assert asked == {"cores": 3, "memory": value}
    assert type(asked["memory"]) is type(value)


def test_variables_hold_the_policy_and_what_a_user_sets_wins() -> None:
    mine = {"MINE": "1", "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "0.77"}
    settings = {"plan_options": {"env": "environment"}, "options": {"env": mine}}
    variables = gateway_options.requested_options(_plan(settings, memory={"spill": 0.65}))["env"]
    assert variables["DASK_DISTRIBUTED__WORKER__MEMORY__SPILL"] == "0.65"
    assert variables["DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE"] == "0.77"
    assert variables["DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL"] == "60s"
    assert variables["POLARS_MAX_THREADS"] == "3"
    assert variables["MINE"] == "1"


def test_the_rendering_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_PASSWORD", "hunter2")
    settings = {"options": {"environment": {"TOKEN": "hunter3"}, "image": "x"}}
    plan = _plan(settings)
    document = yaml.safe_load(_rendered(plan))
    assert document["gateway"]["password"] == "in variable GATEWAY_PASSWORD"
    assert document["options"]["environment"] == {"TOKEN": "(hidden)"}
    for text in (_rendered(plan), repr(plan), repr(plan.settings)):
        assert "hunter" not in text


def _options() -> Options:
    return Options(
        Integer("worker_cores", 1, min=1, max=2),
        Integer("worker_memory", 2),
        Float("scheduler_memory", 1.0, min=0.5),
        Select("profile", "small", options=["small", "large"]),
        String("image", "dask"),
        Mapping("environment", {}),
    )


def test_every_option_that_the_server_refuses_is_reported_at_once() -> None:
    settings = {
        "plan_options": {**ALL, "scheduler_cores": None},
        "options": {"profile": "huge", "image": 7, "environment": {"TOKEN": "hunter2"}},
    }
    with pytest.raises(RequestError) as caught:
        gateway_options.fill_options(_options(), _plan(settings, scheduler_ram="400MB"))
    faults = {fault.where: fault for fault in caught.value.faults}
    assert len(faults) == 6
    by_name = {where.split()[1]: fault for where, fault in faults.items()}
    assert by_name["worker_cores"].asked == "3"
    assert by_name["worker_cores"].allowed == "a whole number from 1 to 2"
    assert by_name["worker_memory"].allowed == "a whole number"
    assert by_name["scheduler_memory"].allowed == "a number from 0.5"
    assert by_name["profile"].allowed == "one of small, large"
    assert by_name["image"].allowed == "image must be a string, got 7"
    assert by_name["idle"].allowed.startswith("one of its options: worker_cores, worker_memory")
    assert "idle: null" in by_name["idle"].advice
    assert "hunter2" not in str(caught.value)


def test_options_of_dask_gateways_own_configuration_hold_below_those_of_the_plan() -> None:
    own = {"image": "theirs", "worker_cores": 1, "environment": {"A": "1", "B": "1"}}
    options = _options()
    settings = {
        "plan_options": {"worker_cores": "nthreads", "environment": "environment"},
        "options": {"environment": {"B": "2"}},
    }
    with dask.config.set({"gateway.cluster.options": own}):
        gateway_options.fill_options(options, _plan(settings, nthreads=2))
    assert options.image == "theirs"
    assert options.worker_cores == 2
    assert (options.environment["A"], options.environment["B"]) == ("1", "2")
    with (
        dask.config.set({"gateway.cluster.options": {"nothing": 1}}),
        pytest.raises(RequestError, match="option nothing of the gateway = 1"),
    ):
        gateway_options.fill_options(_options(), _plan(settings, nthreads=2))


def test_a_plan_reports_missing_settings_and_quantities_without_option() -> None:
    with pytest.raises(RequestError) as caught:
        hyperplane.plan_cluster(
            engine="gateway",
            engine_options={"username": "ada", "password_variable": "P", "auth": "kerberos"},
            scheduler_ram="4Gi",
            scheduler_cpu=2,
        )
    faults = {fault.where.rpartition(".")[2]: fault for fault in caught.value.faults}
    assert set(faults) == {
        "address",
        "username",
        "password_variable",
        "scheduler_ram",
        "scheduler_cpu",
    }
    assert "OPTION: scheduler_ram_gib" in faults["scheduler_ram"].advice
    for way in ('engine_options={"address": ', "--engine-options address=https://"):
        assert way in faults["address"].advice
    with dask.config.set({"gateway.address": "https://gateway.example"}):
        assert hyperplane.plan_cluster(engine="gateway").engine == "gateway"


@pytest.mark.parametrize(
    "option",
    [
        {"address": "gateway.example"},
        {"address": "https://ada:secret@gateway.example"},
        {"address": "https://{HOME}.example"},
        {"address": "https://gateway.example\nX: y"},
        {"proxy_address": 0},
        {"proxy_address": "gateway.example"},
        {"auth": "none"},
        {"username": "ada:secret"},
        {"username": "{HOME}"},
        {"password_variable": "not a name"},
        {"plan_options": {"worker_cores": "cores"}},
        {"plan_options": {"worker cores": "nthreads"}},
        {"options": {"a b": 1}},
        {"password": "secret"},
    ],
)
def test_invalid_settings_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(option))):
        _plan(option)


def test_null_removes_an_option_of_the_default_configuration() -> None:
    assert gateway_options.requested_options(_plan({"plan_options": {"worker_cores": None}})) == {}


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(hyperplane.EngineUnavailable, match=r"pip install 'hyperplane\[gateway\]'"):
        hyperplane.start(_plan())


def test_available_does_not_contact_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    usable, reason = GatewayEngine().available()
    assert usable
    assert "it is contacted when a cluster starts" in reason
