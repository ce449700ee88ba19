"""The plan of a cluster."""

import json
import pickle
import re
from dataclasses import replace

import pytest
from html_pages import read_page

from hyperplane.errors import RequestError
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.framework_options import FrameworkOptions
from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.plan import ClusterPlan, new_cluster_name
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import CudaSettings, LocalSettings
from hyperplane.spec.tuning import Tuning
from hyperplane.spec.worker import WorkerSpec

POOL = PoolSpec(name="a<b>", cores=16, ram_gb=16, allocatable_cores=15, allocatable_ram_gb=12)


@pytest.fixture
def plan():
    return ClusterPlan(
        name="dask-cluster-1",
        engine="local",
        request=ClusterRequest(num_workers=3),
        pool=POOL,
        asked=WorkerSpec(15, 1, 700_000_000, 15),
        worker=WorkerSpec(5, 3, 2_400_000_000, 15),
        nodes=2,
        settings=LocalSettings(),
        options=DaskOptions(
            tuning=Tuning(
                name="mine",
                server={"distributed.worker.profile.interval": "100ms"},
                environ={"POLARS_MAX_THREADS": "3"},
            )
        ),
        notes=("2 < 3 & more", "second"),
    )


def test_totals_count_all_nodes(plan):
    assert plan.dask_workers == 10
    assert plan.total_threads == 30
    assert plan.total_ram == 24_000_000_000


def test_to_dict_can_be_written_as_json(plan):
    assert json.loads(json.dumps(plan.to_dict())) == {
        "name": "dask-cluster-1",
        "engine": "local",
        "pool": {
            "name": "a<b>",
            "alias": "",
            "cores": 16.0,
            "ram_gb": 16.0,
            "allocatable_cores": 15.0,
            "allocatable_ram_gb": 12.0,
            "gpus": 0,
            "price_per_hour": None,
            "note": "",
        },
        "nodes": 2,
        "worker": {
            "nprocs": 5,
            "nthreads": 3,
            "ram_gb_per_proc": 2.4,
            "cores_per_worker": 15,
            "ngpus": 0,
        },
        "dask_workers": 10,
        "total_threads": 30,
        "total_ram_gb": 24.0,
        "memory": {"target": 0.6, "spill": 0.7, "pause": 0.8, "terminate": 0.95},
        "tuning": {
            "name": "mine",
            "server": {"distributed.worker.profile.interval": "100ms"},
            "client": {},
            "environ": {"POLARS_MAX_THREADS": "3"},
            "direct_to_workers": False,
        },
        "notes": ["2 < 3 & more", "second"],
    }


def test_the_text_shows_the_requested_and_the_planned_layout(plan):
    assert str(plan).splitlines() == [
        "cluster        dask-cluster-1",
        "engine         local",
        "pool           a<b> (15 cores, 12 GB)",
        "asked          3 nodes, each 15 processes x 1 thread x 0.7 GB",
        "given          2 nodes, each 5 processes x 3 threads x 2.4 GB",
        "total          10 worker processes, 30 threads, 24 GB",
        "memory policy  target 60%, spill 70%, pause 80%, terminate 95%",
        "tuning         mine: 2 settings; the profile dask has none",
        "note           2 < 3 & more",
        "note           second",
    ]


def test_the_text_shows_what_was_chosen_for_failures(plan):
    request = ClusterRequest(num_workers=3, stall_timeout="2 minutes", oom="raise")
    text = str(replace(plan, request=request))
    assert "stall timeout  120 s\noom            raise\n" in text


@pytest.mark.parametrize(
    ("setting", "argument", "expected"),
    [(True, None, True), (False, None, False), (False, True, True), (True, False, False)],
)
def test_the_argument_decides_about_checks_before_the_setting(plan, setting, argument, expected):
    request = ClusterRequest(num_workers=3, preflight=argument)
    changed = replace(plan, request=request, settings=LocalSettings(preflight=setting))
    assert changed.preflight is expected
    assert ("preflight", "no") in changed.rows() or argument is not False


def test_an_engine_without_checks_has_no_setting_for_them() -> None:
    assert "preflight" not in CudaSettings.model_fields


@pytest.mark.parametrize("timeout", [None, 0, "0", "0s", "0 minutes"])
def test_an_idle_timeout_of_zero_means_never(plan, timeout):
    assert replace(plan, settings=LocalSettings(idle_timeout=timeout)).idle_timeout is None
    assert replace(plan, settings=LocalSettings(idle_timeout="2m")).idle_timeout == 120


def test_html_has_the_same_rows_escaped(plan):
    page = read_page(plan._repr_html_())
    assert set(plan.rows()) <= set(zip(page.cells[::2], page.cells[1::2], strict=True))
    assert "2 < 3 & more" in page.text
    assert "b" not in page.tags


def test_html_shows_the_share_of_the_request_that_is_given(plan):
    given = replace(plan, nodes=2, worker=replace(plan.asked, nprocs=1))
    page = read_page(given._repr_html_())
    asked = 3 * plan.asked.total_threads
    assert page.rows["threads"] == f"{2 * plan.asked.nthreads} of {asked} requested"
    assert page.rows["RAM"].endswith(" GB requested")
    assert f"width:{100 * 2 * plan.asked.nthreads / asked:.1f}%" in given._repr_html_()


def test_new_cluster_names_are_unique():
    uuid4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    names = {new_cluster_name() for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(f"dask-cluster-{uuid4}", name) for name in names)


def test_a_new_cluster_name_is_valid_in_a_request():
    name = new_cluster_name()
    assert ClusterRequest(name=name).name == name


def test_memory_and_tuning_of_a_plan_warn_that_they_moved_to_options(plan):
    with pytest.warns(FutureWarning, match=r"ClusterPlan\.memory moved to .*options\.memory"):
        assert plan.memory is plan.options.memory
    with pytest.warns(FutureWarning, match=r"options\.tuning"):
        assert plan.tuning is plan.options.tuning


def test_the_argument_memory_of_a_plan_warns_that_it_moved_to_options(plan):
    policy = MemoryPolicy(pause=0.85)
    with pytest.warns(FutureWarning, match="memory of ClusterPlan moved"):
        changed = replace(plan, memory=policy)
    assert changed.options == replace(plan.options, memory=policy)


def test_positional_arguments_of_version_0_1_are_accepted_with_a_warning(plan):
    policy, tuning = MemoryPolicy(pause=0.85), Tuning(name="theirs")
    first = (plan.name, plan.engine, plan.request, plan.pool, plan.asked, plan.worker, plan.nodes)
    with pytest.warns(FutureWarning, match="memory and tuning of ClusterPlan moved"):
        plan_0_1 = ClusterPlan(*first, policy, plan.settings, plan.notes, "", (), tuning)
    assert plan_0_1 == replace(plan, options=DaskOptions(policy, tuning))


def test_a_plan_of_another_framework_has_no_memory_policy_and_no_tuning(plan):
    other = replace(plan, engine="ray:slurm", options=FrameworkOptions())
    assert (plan.framework, other.framework) == ("dask", "ray")
    with pytest.raises(AttributeError, match="ray:slurm has no attribute 'memory'"):
        _ = other.memory
    assert not {"memory policy", "tuning"} & dict(other.rows()).keys()
    assert not {"memory", "tuning"} & other.to_dict().keys()
    with pytest.raises(RequestError, match="expected DaskOptions"):
        DaskOptions.of(other.options)


def test_a_plan_pickled_by_version_0_1_is_loaded_with_options(plan):
    state = dict(vars(plan))
    options = state.pop("options")
    old = object.__new__(ClusterPlan)
    vars(old).update({**state, "memory": options.memory, "tuning": options.tuning})
    read = pickle.loads(pickle.dumps(old))
    assert read == plan == pickle.loads(pickle.dumps(plan))
