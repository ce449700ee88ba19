"""Planning of clusters, without starting them."""

import json
import re

import dask.config
import pytest
from html_pages import read_page
from typer.testing import CliRunner

import hyperplane
from hyperplane.cli import app
from hyperplane.clusters import registry
from hyperplane.clusters.dask.cuda.engine import CudaEngine
from hyperplane.clusters.dask.local.engine import LocalEngine
from hyperplane.clusters.engine import Availability
from hyperplane.clusters.ray.local.engine import LocalRayEngine
from hyperplane.clusters.ray.ssh.engine import SshRayEngine
from hyperplane.errors import (
    ConfigError,
    DoesNotFit,
    EngineUnavailable,
    RequestError,
    UnknownArgument,
    UnknownPool,
)
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.settings import EngineSettings, LocalSettings
from hyperplane.spec.tuning import Tuning
from hyperplane.spec.worker import WorkerSpec

HOST = {"hosts": ["one", "two"]}
GPU_POOL = PoolSpec(
    name="gpu", cores=16, ram_gb=64, allocatable_cores=15, allocatable_ram_gb=60, gpus=2
)


class CloudEngine:
    """An engine with unlimited nodes of any type."""

    name = "cloud"
    unsupported = frozenset()
    ignored = frozenset()
    settings = EngineSettings
    uses_pools = True

    def faults(self, request, settings):
        return []

    def available(self):
        return Availability(True, "the cloud is always there")

    def capacity(self, settings):
        return None


class AbsentEngine(CloudEngine):
    name = "absent"

    def available(self):
        return Availability(False, "log in first")


@pytest.fixture(autouse=True)
def _other_engines(monkeypatch):
    for engine in (CloudEngine, AbsentEngine):
        home = f"{__name__}:{engine.__name__}"
        monkeypatch.setitem(registry.ENGINES.built_in, engine.name, home)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine with 8 cores and 30 GB available."""
    capacity = MachineCapacity(8, 30 * 10**9)
    monkeypatch.setattr(LocalEngine, "capacity", lambda self, settings: capacity)
    monkeypatch.setattr(CudaEngine, "available", lambda self: Availability(False, "no GPU here"))
    return capacity


def _plan(*args, **arguments):
    """A plan that is not reduced to a machine."""
    return hyperplane.plan_cluster(*args, **{"engine": "cloud", **arguments})


def _refused(**arguments):
    with pytest.raises(RequestError) as caught:
        hyperplane.plan_cluster(**arguments)
    return caught.value


class TestPool:
    @pytest.mark.parametrize("pool", list(hyperplane.pools()))
    def test_alone_has_the_layout_of_fit_workers(self, pool):
        plan = _plan(pool=f"POOL_{pool}")
        assert plan.pool == hyperplane.get_pool(pool)
        assert plan.worker == plan.asked == hyperplane.fit_workers(pool)
        assert plan.nodes == 2
        assert f"2 nodes, each {plan.worker}" in dict(plan.rows())["asked"]

    @pytest.mark.parametrize(
        "given",
        [
            {"nprocs": 4},
            {"nthreads": 2},
            {"ram_gb_per_proc": 5},
            {"nprocs": 2, "nthreads": 2},
            {"nprocs": 2, "ram_gb_per_proc": 3},
            {"nprocs": 2, "nthreads": 3, "ram_gb_per_proc": 3},
        ],
    )
    def test_fills_in_what_is_not_given(self, given):
        plan = _plan(pool="32_32", **given)
        assert plan.worker == hyperplane.fit_workers("32_32", **given)
        kept = plan.worker.to_dict()
        assert {name: kept[name] for name in given} == given

    @pytest.mark.parametrize(
        ("given", "worker"),
        [
            ({"cores_per_worker": 10}, WorkerSpec(3, 3, 9 * 10**9, 10)),
            ({"cores_per_worker": 2, "nprocs": 2}, WorkerSpec(2, 1, 13_500 * 10**6, 2)),
            ({"cores_per_worker": 28}, WorkerSpec(7, 4, 3857 * 10**6, 28)),
            (
                {"cores_per_worker": 20, "nprocs": 5, "nthreads": 3, "ram_gb_per_proc": 1},
                WorkerSpec(5, 3, 10**9, 20),
            ),
        ],
    )
    def test_proposes_no_more_threads_than_the_cores_that_were_given(self, given, worker):
        assert _plan(pool="32_32", **given).worker == worker

    @pytest.mark.parametrize(
        "given",
        [
            {"nprocs": 8},
            {"nprocs": 7, "ram_gb_per_proc": 0.8},
            {"ram_gb_per_proc": 5.1},
            {"cores_per_worker": 7.5},
            {"nprocs": 1, "nthreads": 1, "ram_gb_per_proc": 6, "cores_per_worker": 1},
        ],
    )
    def test_too_small_for_what_is_given_is_refused(self, given):
        error = _refused(pool="8_8", **given)
        assert type(error) is DoesNotFit
        assert error.pool == "8_8"
        assert error.allowed == "at most 7 cores and 5 GB on a node of pool 8_8"

    def test_without_gpus_does_not_give_any(self):
        assert type(_refused(pool="16_16", ngpus=1, engine="cloud")) is DoesNotFit
        assert _plan(pool=GPU_POOL, ngpus=1).worker.ngpus == 1

    def test_may_be_a_spec(self):
        own = PoolSpec(name="own", cores=4, ram_gb=8, allocatable_cores=4, allocatable_ram_gb=8)
        plan = _plan(pool=own)
        assert plan.pool is own
        assert plan.worker == WorkerSpec(2, 2, 4 * 10**9, 4)

    @pytest.mark.parametrize(
        ("arguments", "pool"),
        [
            ({}, "16_16"),
            ({"nprocs": 5, "nthreads": 3, "ram_gb_per_proc": 2.4}, "16_16"),
            ({"ram_gb_per_proc": 110 / 15}, "16_128"),
            # Rounded to bytes, three of these exceed the memory by one byte.
            ({"nprocs": 3, "nthreads": 5, "ram_gb_per_proc": 110 / 3}, "16_128"),
            ({"nprocs": 1, "cores_per_worker": 1, "ram_gb_per_proc": 0.5}, "4_32"),
            ({"nprocs": 28, "cores_per_worker": 28}, "32_32"),
        ],
    )
    @pytest.mark.usefixtures("published_pools")
    def test_is_the_closest_one_when_none_is_named(self, arguments, pool):
        plan = _plan(**arguments)
        assert plan.pool.name == pool
        # The layout is the requested one.
        assert plan.worker == plan.request.worker

    def test_that_is_large_enough_is_needed_by_an_engine_with_nodes(self):
        asked = {"nprocs": 1, "ram_gb_per_proc": 700}
        assert type(_refused(engine="cloud", **asked)) is DoesNotFit
        plan = hyperplane.plan_cluster(engine="local", **asked)
        assert plan.pool is None
        assert "no pool has nodes of the requested size; this engine needs no pool" in plan.notes

    def test_unknown_keeps_its_error(self):
        error = _refused(pool="16_61")
        assert type(error) is UnknownPool
        assert error.name == "16_61"


class TestAdvice:
    @pytest.mark.parametrize(
        "arguments",
        [
            {"operation": "groupby", "tasks": "heavy"},
            {"operation": "join"},
            {"operation": "filter", "moves_data": False},
            {"operation": "groupby", "pool": "8_64"},
            {"operation": "groupby", "pool": GPU_POOL},
        ],
    )
    def test_becomes_a_plan(self, arguments):
        advice = hyperplane.size_cluster("100GB", **arguments)
        plan = _plan(advice)
        assert (plan.nodes, plan.pool, plan.worker) == (advice.nodes, advice.pool, advice.worker)

    def test_leaves_room_for_other_arguments(self):
        advice = hyperplane.size_cluster("100GB", "groupby")
        plan = _plan(advice, name="mine", nthreads=1, pool="96_768")
        assert (plan.name, plan.pool.name, plan.worker.nthreads) == ("mine", "96_768", 1)
        assert plan.nodes == advice.nodes

    def test_is_cut_to_a_machine_like_any_request(self, machine):
        plan = hyperplane.plan_cluster(hyperplane.size_cluster("100GB", "groupby"))
        assert plan.total_threads <= machine.cores
        assert plan.total_ram <= machine.ram
        assert plan.fit_note


class TestEngine:
    def test_auto_takes_the_first_that_can_be_used_and_says_so(self):
        with dask.config.set({"hyperplane.engines.auto": ["absent", "cloud", "local"]}):
            plan = hyperplane.plan_cluster()
        assert plan.engine == "cloud"
        assert "engine auto: cloud, the cloud is always there" in plan.notes

    def test_auto_skips_engines_that_lack_a_feature(self):
        with dask.config.set({"hyperplane.engines.auto": ["local", "cloud"]}):
            assert hyperplane.plan_cluster().engine == "local"
            assert hyperplane.plan_cluster(ngpus=1, pool=GPU_POOL).engine == "cloud"

    def test_auto_without_a_usable_engine_gives_each_reason(self):
        with (
            dask.config.set({"hyperplane.engines.auto": ["absent"]}),
            pytest.raises(EngineUnavailable, match="absent: log in first"),
        ):
            hyperplane.plan_cluster()

    def test_an_engine_that_cannot_be_used_prints_no_line_of_a_start(self, capsys):
        with pytest.raises(EngineUnavailable, match="absent: log in first"):
            hyperplane.initialize_cluster(engine="absent")
        assert capsys.readouterr().out == ""

    def test_an_unknown_name_in_the_list_of_auto_is_a_fault_of_the_configuration(self):
        with (
            dask.config.set({"hyperplane.engines.auto": ["clout", "local"]}),
            pytest.raises(ConfigError, match=r"auto = .'clout', 'local'.: expected a list"),
        ):
            hyperplane.plan_cluster()

    def test_by_name_is_planned_though_it_cannot_be_used_here(self):
        assert hyperplane.plan_cluster(engine="absent").engine == "absent"

    @pytest.mark.parametrize(
        ("name", "nearest"),
        [("locl", "local or ray:local"), ("Local", "local"), ("absents", "absent")],
    )
    def test_unknown_names_the_nearest(self, name, nearest):
        [fault] = _refused(engine=name).faults
        assert (fault.where, fault.asked) == ("engine", repr(name))
        assert fault.allowed.startswith("one of auto, local")
        assert fault.advice == f"did you mean {nearest}?"

    @pytest.mark.parametrize(
        ("arguments", "engine"),
        [
            ({"framework": "ray", "engine": "local"}, "ray:local"),
            ({"framework": "ray", "engine": "ray:local"}, "ray:local"),
            ({"framework": "ray", "local_mode": True}, "ray:local"),
            ({"framework": "ray", "engine": "ssh", "engine_options": HOST}, "ray:ssh"),
            ({"framework": "dask", "engine": "slurm"}, "slurm"),
            ({"framework": "dask"}, "local"),
            ({"engine": "ray:local"}, "ray:local"),
        ],
    )
    def test_the_framework_selects_the_engine_of_a_platform(self, arguments, engine):
        assert hyperplane.plan_cluster(**arguments).engine == engine

    def test_auto_tries_the_engines_of_the_framework(self, monkeypatch):
        monkeypatch.setattr(LocalRayEngine, "available", lambda self: Availability(True, "yes"))
        plan = hyperplane.plan_cluster(framework="ray")
        assert (plan.engine, plan.name.partition("-")[0]) == ("ray:local", "ray")
        assert "engine auto: ray:local, yes" in plan.notes
        with dask.config.set({"hyperplane.engines.auto": ["ssh", "local"]}):
            monkeypatch.setattr(SshRayEngine, "available", lambda self: Availability(True, "yes"))
            found = hyperplane.plan_cluster(framework="ray", num_workers=1, engine_options=HOST)
            assert found.engine == "ray:ssh"
        # No preferred platform has an engine of it.
        with dask.config.set({"hyperplane.engines.auto": ["cloud"]}):
            assert hyperplane.plan_cluster(framework="ray").engine == "ray:local"
        monkeypatch.setattr(LocalRayEngine, "available", lambda self: Availability(False, "no Ray"))
        with pytest.raises(EngineUnavailable, match="ray:local: no Ray"):
            hyperplane.plan_cluster(framework="ray")

    @pytest.mark.parametrize(
        ("arguments", "where", "allowed"),
        [
            ({"framework": "rayy"}, "framework", "one of dask, ray"),
            ({"framework": "ray", "engine": "gateway"}, "engine", "auto, ray:local"),
            ({"framework": "dask", "engine": "ray:local"}, "engine", "framework dask: auto, local"),
        ],
    )
    def test_a_framework_without_the_engine_is_a_fault(self, arguments, where, allowed):
        fault, threads = _refused(nthreads=0, **arguments).faults[::-1]
        assert (fault.where, threads.where) == (where, "nthreads")
        assert allowed in fault.allowed

    def test_local_has_no_gpus(self):
        with pytest.raises(EngineUnavailable, match="cuda: "):  # the one that auto selects
            hyperplane.plan_cluster(ngpus=2)
        for arguments in ({"engine": "local"}, {"local_mode": True}):
            [fault] = _refused(ngpus=2, **arguments).faults
            assert (fault.where, fault.asked) == ("ngpus", "2")
            assert fault.allowed == "0: engine local has no GPU workers (ngpus)"
            engines = fault.advice.removeprefix("choose another engine: ").split(", ")
            assert {"cloud", "cuda", "slurm"} <= set(engines)
            assert "local" not in engines

    @pytest.mark.parametrize("engine", ["auto", "local"])
    def test_local_mode_means_local(self, engine):
        with dask.config.set({"hyperplane.engines.auto": ["cloud"]}):
            plan = hyperplane.plan_cluster(local_mode=True, engine=engine)
        assert plan.engine == "local"

    @pytest.mark.parametrize("engine", ["cloud", "no-such-engine"])
    def test_local_mode_with_another_engine_is_a_fault(self, engine):
        [fault] = _refused(local_mode=True, engine=engine).faults
        assert (fault.where, fault.asked) == ("local_mode", "True")
        assert fault.allowed == f"False with engine={engine!r}"
        assert fault.advice == "pass only one of the two"

    def test_has_its_settings_in_the_plan(self):
        with dask.config.set({"hyperplane.engines.local.worker_ttl": "30s"}):
            plan = hyperplane.plan_cluster(engine="local")
        assert isinstance(plan.settings, LocalSettings)
        assert plan.settings.worker_ttl == "30s"
        assert type(_plan().settings) is EngineSettings

    def test_whose_settings_are_faulty_cannot_be_planned(self):
        with (
            dask.config.set({"hyperplane.engines.local.fit": "loose"}),
            pytest.raises(ConfigError, match=r"hyperplane\.engines\.local\.fit = 'loose'"),
        ):
            hyperplane.plan_cluster(engine="local")


class TestIgnoredArguments:
    def test_are_noted(self):
        plan = hyperplane.plan_cluster(
            engine="local",
            worker_spec_yaml="kind: Pod",
            node_selector={"zone": "a"},
            scheduler_ram="4Gi",
            scheduler_cpu="1500m",
        )
        for name in ("worker_spec_yaml", "node_selector", "scheduler_ram", "scheduler_cpu"):
            assert f"{name} is ignored: engine local does not support it" in plan.notes

    @pytest.mark.parametrize(
        "arguments",
        [{}, {"node_selector": {}}, {"node_selector": ""}, {"scheduler_ram": None}],
    )
    def test_are_not_noted_with_their_defaults(self, arguments):
        few = {"num_workers": 1, "nprocs": 2, "ram_gb_per_proc": 0.5}
        plan = hyperplane.plan_cluster(engine="local", **few, **arguments)
        assert plan.notes == ()


@pytest.mark.parametrize("name", ["16_16", "hyperplane-med"])
def test_a_pool_in_place_of_the_number_of_nodes_has_advice(name):
    with pytest.raises(RequestError) as caught:
        hyperplane.initialize_cluster(name)
    (fault,) = caught.value.faults
    assert (fault.where, fault.asked) == ("num_workers", repr(name))
    assert fault.advice == f"a pool is passed by its name: pool={name!r}"
    assert "pool=" not in str(_refused(num_workers="several"))


class TestLocalFit:
    def test_fit_cuts_to_the_machine_and_says_so(self, machine):
        plan = hyperplane.plan_cluster(num_workers=4)
        assert plan.nodes == 1
        assert plan.worker == WorkerSpec(4, 2, 7_500_000_000, 8)
        assert plan.total_ram == machine.ram
        assert plan.fit_note in plan.notes
        assert plan.fit_note.startswith("asked 4 nodes x 15 processes x 1 thread x 0.7 GB (60 ")
        assert plan.request.num_workers == 4
        assert plan.asked == plan.request.worker
        assert plan.pool.name == "16_16"

    def test_fit_leaves_alone_what_fits(self):
        arguments = {"num_workers": 2, "nprocs": 2, "nthreads": 2, "ram_gb_per_proc": 7.5}
        plan = hyperplane.plan_cluster(**arguments, local_fit="fit")
        assert (plan.nodes, plan.worker) == (2, WorkerSpec(2, 2, 7_500_000_000, 15))
        assert plan.fit_note == ""

    def test_exact_starts_what_is_asked(self):
        plan = hyperplane.plan_cluster(num_workers=4, local_fit="exact")
        assert (plan.nodes, plan.worker) == (4, WorkerSpec(15, 1, 700_000_000, 15))
        assert plan.fit_note == ""
        [note] = [note for note in plan.notes if "larger than this machine" in note]
        assert "60 threads" in note
        assert "42 GB" in note
        assert plan.alerts == (note,)  # printed at the start

    def test_exact_notes_threads_that_share_cores_without_an_alert(self):
        few = {"num_workers": 1, "nprocs": 10, "ram_gb_per_proc": 1}
        plan = hyperplane.plan_cluster(engine="local", local_fit="exact", **few)
        [note] = plan.notes
        assert "10 threads on 8 cores" in note
        assert plan.alerts == ()

    def test_exact_says_nothing_of_what_fits(self):
        few = {"num_workers": 1, "nprocs": 8, "ram_gb_per_proc": 3.75}
        plan = hyperplane.plan_cluster(engine="local", local_fit="exact", **few)
        assert plan.notes == ()

    def test_a_machine_without_memory_is_refused_by_fit_and_taken_by_exact(self, monkeypatch):
        full = MachineCapacity(8, 10**6)
        monkeypatch.setattr(LocalEngine, "capacity", lambda self, settings: full)
        error = _refused(local_fit="fit")
        assert type(error) is DoesNotFit
        assert "1 MB" in error.allowed
        assert hyperplane.plan_cluster(local_fit="exact").nodes == 2

    def test_is_configured_where_a_call_does_not_say(self):
        with dask.config.set({"hyperplane.engines.local.fit": "exact"}):
            assert hyperplane.plan_cluster().nodes == 2
            assert hyperplane.plan_cluster(local_fit="fit").nodes == 1

    def test_how_many_cores_one_process_takes_is_configured(self):
        with dask.config.set({"hyperplane.engines.local.single_process_cores": 8}):
            assert hyperplane.plan_cluster().worker.nprocs == 1

    def test_does_not_apply_to_engines_with_nodes(self):
        assert _plan(num_workers=40, local_fit="fit").nodes == 40


class TestFaults:
    def test_all_are_reported_at_once(self):
        error = _refused(engine="locl", pool="17_17", nprocs=0, nproc=3)
        assert type(error) is UnknownArgument
        assert [fault.where for fault in error.faults] == ["nproc", "nprocs", "engine", "pool"]
        assert str(error).startswith("4 faults in the request, nothing was started:\n  1. nproc=3")

    def test_a_pool_that_is_too_small_is_one_of_several(self):
        error = _refused(pool="8_8", nprocs=8, logging="loud", ngpus=1)
        assert type(error) is RequestError
        assert {fault.where for fault in error.faults} == {"logging", "engine", "worker"}

    def test_a_faulty_engine_does_not_hide_that_no_pool_is_large_enough(self):
        error = _refused(engine="locl", nprocs=1, ram_gb_per_proc=700)
        assert [fault.where for fault in error.faults] == ["engine", "worker"]

    def test_of_the_arguments_alone(self):
        error = _refused(num_workers=0)
        assert type(error) is RequestError
        assert str(error).startswith("1 fault in the request")

    def test_an_unknown_section_of_the_configuration_is_an_error(self):
        with dask.config.set({"hyperplane.memroy.pause": 0.5}):
            for work in (hyperplane.plan_cluster, lambda: hyperplane.size_cluster("1GB")):
                with pytest.raises(ConfigError, match=r"hyperplane\.memroy = ") as caught:
                    work()
                assert caught.value.path == "hyperplane.memroy"

    def test_memory_that_rounds_to_nothing(self):
        [fault] = _refused(ram_gb_per_proc=1e-12).faults
        assert fault.where.startswith("ram")


class TestPlan:
    def test_has_a_unique_name_unless_one_is_given(self):
        uuid4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
        names = {hyperplane.plan_cluster().name for _ in range(3)}
        assert len(names) == 3
        assert all(re.fullmatch(f"dask-cluster-{uuid4}", name) for name in names)
        assert hyperplane.plan_cluster(name="mine").name == "mine"

    def test_has_the_configured_policy_unless_one_is_given(self):
        with dask.config.set({"hyperplane.memory.pause": 0.85}):
            assert hyperplane.plan_cluster().options.memory == MemoryPolicy(pause=0.85)
            own = MemoryPolicy(terminate=False)
            assert hyperplane.plan_cluster(memory=own).options.memory is own
            assert hyperplane.plan_cluster(memory={"pause": 0.9}).options.memory.pause == 0.9

    def test_keeps_the_idle_timeout_in_seconds(self):
        assert hyperplane.plan_cluster(idle_timeout="30 minutes").request.idle_timeout == 1800

    def test_to_dict_is_json_with_every_figure(self):
        plan = hyperplane.plan_cluster(2, pool="16_16", engine="cloud", name="mine")
        shown = json.loads(json.dumps(plan.to_dict()))
        assert shown["pool"]["name"] == "16_16"
        assert shown["worker"] == plan.worker.to_dict()
        assert (shown["nodes"], shown["dask_workers"], shown["total_threads"]) == (2, 10, 30)
        assert (shown["total_ram_gb"], shown["name"], shown["engine"]) == (24.0, "mine", "cloud")
        assert shown["notes"] == list(plan.notes)

    def test_text_and_html_show_what_was_asked_and_what_is_given(self):
        plan = hyperplane.plan_cluster(name="mine")
        text, page = str(plan), plan._repr_html_()
        for words in (
            "mine",
            "2 nodes, each 15 processes x 1 thread x 0.7 GB",
            "1 node, each 4 processes x 2 threads x 5.25 GB",
            "4 worker processes, 8 threads, 21 GB",
            "target 60%, spill 70%, pause 80%, terminate 95%",
            "this machine gives 4 processes",
        ):
            assert words in text
            assert words in page
        page = read_page(page)
        assert all(text in page.cells for row in plan.rows() for text in row)

    def test_planning_starts_nothing(self, monkeypatch):
        monkeypatch.setattr(LocalEngine, "start", None)
        assert hyperplane.plan_cluster().dask_workers == 4


class TestTuning:
    def test_the_configured_profile_holds_and_the_plan_shows_it(self):
        plan = hyperplane.plan_cluster(num_workers=1, nprocs=1, nthreads=2, cores_per_worker=2)
        assert plan.options.tuning.name == "fast"
        assert plan.options.tuning.environ["POLARS_MAX_THREADS"] == "2"
        assert plan.options.tuning.client == {"dataframe.shuffle.method": "tasks"}
        assert plan.options.tuning.summary() in str(plan)
        assert plan.options.tuning.summary() in plan._repr_html_()
        assert json.loads(json.dumps(plan.to_dict()))["tuning"] == plan.options.tuning.model_dump()

    def test_several_processes_have_no_settings_of_clients(self):
        plan = hyperplane.plan_cluster()
        assert plan.dask_workers == 4
        assert plan.options.tuning.client == {}
        assert plan.options.tuning.environ["POLARS_MAX_THREADS"] == str(plan.worker.nthreads)

    @pytest.mark.parametrize("name", ["dask", "Dask", " DASK "])
    def test_a_call_switches_it_off(self, name):
        assert hyperplane.plan_cluster(tuning=name).options.tuning == Tuning()

    def test_the_configuration_switches_it_off_and_a_call_on(self):
        with dask.config.set({"hyperplane.tuning.profile": "dask"}):
            assert hyperplane.plan_cluster().options.tuning.name == "dask"
            assert hyperplane.plan_cluster(tuning="fast").options.tuning.name == "fast"

    def test_a_site_changes_one_setting_and_adds_a_profile(self):
        profiles = "hyperplane.tuning.profiles"
        changed = {
            f"{profiles}.fast.server.distributed.worker.profile.interval": "50ms",
            f"{profiles}.fast.environ.POLARS_MAX_THREADS": None,
            f"{profiles}.site-wide.server": {"distributed.worker.profile.enabled": False},
        }
        shipped = hyperplane.plan_cluster().options.tuning
        with dask.config.set(changed):
            fast = hyperplane.plan_cluster().options.tuning
            site = hyperplane.plan_cluster(tuning="site-wide").options.tuning
        assert fast.server == {**shipped.server, "distributed.worker.profile.interval": "50ms"}
        assert "POLARS_MAX_THREADS" not in fast.environ
        assert site.server == {"distributed.worker.profile.enabled": False}

    def test_an_unknown_profile_is_one_fault_among_all(self):
        with pytest.raises(RequestError) as caught:
            hyperplane.plan_cluster(tuning="fst", nprocs=-1, pool="16_17")
        faults = {fault.where: fault for fault in caught.value.faults}
        assert set(faults) == {"nprocs", "pool", "tuning"}
        assert faults["tuning"].allowed == "one of fast, dask"
        assert faults["tuning"].advice.startswith("did you mean fast")

    def test_a_profile_that_is_not_text_is_a_fault(self):
        with pytest.raises(RequestError) as caught:
            hyperplane.plan_cluster(tuning=7)
        assert [fault.where for fault in caught.value.faults] == ["tuning"]

    def test_the_command_line_takes_a_profile_and_shows_all_of_it(self):
        def command(*arguments):
            result = CliRunner().invoke(app, ["plan", *arguments], env={"COLUMNS": "200"})
            assert result.exit_code == 0, result.output
            return result.stdout

        assert "profile.interval" not in command()
        shown = command("--settings", "--nthreads", "2", "--nprocs", "1", "--num-workers", "1")
        for _, text in hyperplane.plan_cluster(1, nprocs=1, nthreads=2).options.tuning.rows():
            assert text in shown
        assert json.loads(command("--tuning", "dask", "--json"))["tuning"] == Tuning().model_dump()


class TestEngineOptions:
    def test_hold_for_one_plan(self):
        plan = hyperplane.plan_cluster(engine="local", engine_options={"preload": ["json"]})
        assert plan.settings.preload == ("json",)
        assert hyperplane.plan_cluster(engine="local").settings.preload != ("json",)

    def test_unknown_options_are_faults_with_the_nearest_name(self):
        error = _refused(engine="local", num_workers=0, engine_options={"fitt": "fit"})
        assert {fault.where for fault in error.faults} == {"num_workers", "engine_options.fitt"}
        [fault] = [each for each in error.faults if each.where == "engine_options.fitt"]
        assert "did you mean fit?" in str(fault)
        assert "reserve_fraction" in fault.allowed
