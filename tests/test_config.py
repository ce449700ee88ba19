"""Typed views of the configuration, the three ways to override it, and its faults.

What a file or a variable does is tried in a new process, because Dask reads both as it is
imported.
"""

import json
import os
import pickle
import subprocess
import sys

import dask.config
import pytest
from published_pools import PUBLISHED_POOLS

from hyperplane import config, config_memory
from hyperplane.clusters.registry import ENGINES
from hyperplane.core import config_defaults
from hyperplane.errors import ConfigError, Fault, UnknownKey, UnknownPool
from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.settings import EngineSettings, GatewaySettings, LocalSettings, RaySshSettings

SHOW = """
import json, sys
import hyperplane
from hyperplane import config
from hyperplane.clusters.registry import ENGINES
from hyperplane.errors import ConfigError

def view(read):
    try:
        return read()
    except ConfigError as error:
        return str(error)

fields = ("source", "where", "asked", "allowed", "advice")
print(json.dumps({
    "faults": [[getattr(fault, name) for name in fields] for fault in config.faults(ENGINES)],
    "pools": view(lambda: {n: p.model_dump(exclude={"name"}) for n, p in config.pools().items()}),
    "memory": view(lambda: config.memory_policy().to_dict()),
    "weights": view(lambda: {name: config.sizing_rules().weight(name) for name in sys.argv[1:]}),
    "checks": view(lambda: config.sizing_rules().checks.model_dump()),
}))
"""


@pytest.fixture
def in_new_process(tmp_path):
    """Read the configuration in a new process with these files and variables."""
    folder = tmp_path / "dask"

    def show(*operations, files=None, **variables):
        folder.mkdir(exist_ok=True)
        for name, text in (files or {}).items():
            (folder / name).write_text(text)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DASK_")}
        places = {"DASK_CONFIG": str(folder), "DASK_ROOT_CONFIG": str(tmp_path / "none")}
        done = subprocess.run(
            [sys.executable, "-c", SHOW, *operations],
            env={**kept, **places, **variables},
            capture_output=True,
            text=True,
            timeout=250,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    show.folder = folder
    return show


POOL_KEYS = (
    "alias, cores, ram_gb, allocatable_cores, allocatable_ram_gb, gpus, price_per_hour, note"
)


class TestPools:
    @pytest.mark.parametrize(
        ("name", "alias", *("cores", "ram", "free_cores", "free_ram")), PUBLISHED_POOLS
    )
    def test_shipped_pools_have_the_published_figures(
        self, name, alias, cores, ram, free_cores, free_ram
    ):
        published = config.pools()[name]
        assert bool(published.note) == (name == "4_32")
        assert published == PoolSpec(
            name=name,
            alias=alias,
            cores=cores,
            ram_gb=ram,
            allocatable_cores=free_cores,
            allocatable_ram_gb=free_ram,
            gpus=0,
            price_per_hour=None,
            note=published.note,
        )

    def test_the_pool_with_the_least_memory_for_workers_is_first(self):
        sizes = [
            (pool.allocatable_ram_gb, pool.allocatable_cores) for pool in config.pools().values()
        ]
        assert sizes == sorted(sizes)

    def test_get_pool_accepts_every_spelling_of_a_name(self):
        for name, pool in config.pools().items():
            written = [name, f"POOL_{name}", f"DASK_POOL_{name}", *filter(None, [pool.alias])]
            written += [text.replace("_", "-") for text in written]
            for text in written:
                for form in (text, text.upper(), text.lower(), text.title(), f"  {text} "):
                    assert config.get_pool(form) == pool, form

    def test_get_pool_returns_a_pool_spec_unchanged(self):
        spec = PoolSpec(name="x", cores=2, ram_gb=4, allocatable_cores=2, allocatable_ram_gb=3)
        assert config.get_pool(spec) is spec

    @pytest.mark.parametrize(
        ("asked", "nearest"),
        [
            ("16_61", "16_16"),
            ("POOL_16_129", "16_128"),
            ("hyperplane-medd", "hyperplane-med"),
            ("hyperplane-extra-large", "hyperplane-large"),
            ("Hyperplane_XXL_Mem", "hyperplane-xxl-high-mem"),
        ],
    )
    @pytest.mark.usefixtures("published_pools")
    def test_an_unknown_name_is_an_error_that_proposes_the_nearest(self, asked, nearest):
        with pytest.raises(UnknownPool, match="did you mean") as caught:
            config.get_pool(asked)
        error = caught.value
        assert error.name == asked
        assert set(error.known) == {name for row in PUBLISHED_POOLS for name in row[:2]}
        assert nearest in error.faults[0].advice

    @pytest.mark.parametrize("asked", ["zzz", "", None, 1616])
    def test_a_name_unlike_any_pool_is_an_error(self, asked):
        with pytest.raises(UnknownPool) as caught:
            config.get_pool(asked)
        assert caught.value.name == str(asked)


class TestSetInThePythonProcess:
    def test_a_value_applies_from_the_next_call_to_the_end_of_the_block(self):
        with dask.config.set({"hyperplane.pools.pool_16_16.price_per_hour": 0.58}):
            assert config.get_pool("16_16").price_per_hour == 0.58
            assert config.get_pool("16_16").allocatable_ram_gb == 12.0
        assert config.get_pool("16_16").price_per_hour is None

    @pytest.mark.parametrize(
        "key", ["pool_16_16", "pool-16-16", "POOL_16_16", "Pool-16-16", "DASK_POOL_16_16"]
    )
    def test_keys_of_a_pool_may_have_any_spelling(self, key):
        before = set(config.pools())
        with dask.config.set({f"hyperplane.pools.{key}.allocatable-ram-gb": 11}):
            assert set(config.pools()) == before
            assert config.get_pool("16_16").allocatable_ram_gb == 11
            assert config.faults(ENGINES) == []

    def test_a_site_may_replace_all_pools(self):
        only = {"cores": 4, "ram_gb": 8, "allocatable_cores": 4, "allocatable_ram_gb": 8}
        with dask.config.set({"hyperplane.pools": {"pool_tiny": only}}):
            assert list(config.pools()) == ["tiny"]

    def test_thresholds_set_in_python_change_the_policy(self):
        with dask.config.set({"hyperplane.memory.pause": 0.85, "hyperplane.memory.spill": False}):
            assert config.memory_policy() == MemoryPolicy(pause=0.85, spill=False)

    def test_values_set_in_python_change_engine_settings(self):
        with dask.config.set({"hyperplane.engines.local.reserve-fraction": 0.2}):
            settings = config.engine_settings("local", LocalSettings)
        assert settings.reserve_fraction == 0.2
        assert settings.single_process_cores == 3

    def test_settings_of_an_engine_without_a_section_are_its_defaults(self):
        assert config.engine_settings("elsewhere", EngineSettings) == EngineSettings()

    def test_auto_engines_set_in_python_are_returned(self):
        with dask.config.set({"hyperplane.engines.auto": ["kubernetes", "local"]}):
            assert config.auto_engines() == ("kubernetes", "local")


class TestShipped:
    def test_the_shipped_configuration_has_no_faults(self):
        assert config.faults(ENGINES) == []

    @pytest.mark.usefixtures("usual_preload")
    def test_shipped_values_equal_the_documented_defaults(self):
        assert config.memory_policy() == MemoryPolicy(0.60, 0.70, 0.80, 0.95)
        assert config.engine_settings("local", LocalSettings) == LocalSettings(
            preload=("dask.dataframe", "pyarrow.parquet")
        )
        assert config.auto_engines() == ("local", "cuda")


def _the_fault(view):
    with pytest.raises(ConfigError) as caught:
        view()
    assert len(caught.value.faults) == 1
    assert caught.value.path == caught.value.faults[0].where
    return caught.value.faults[0]


class TestFaults:
    """Faults of values set in Python; those of files and variables are below."""

    @pytest.mark.parametrize(
        ("key", "view"),
        [
            ("pools", config.pools),
            ("sizing", config.sizing_rules),
            ("memory", config.memory_policy),
            ("engines.local", lambda: config.engine_settings("local", LocalSettings)),
        ],
    )
    @pytest.mark.parametrize("value", [5, ["a"], "text"])
    def test_a_section_that_is_not_a_mapping_is_a_fault(self, key, view, value):
        with dask.config.set({f"hyperplane.{key}": value}):
            fault = _the_fault(view)
            assert fault in config.faults(ENGINES)
        assert fault.where == f"hyperplane.{key}"
        assert fault.asked == repr(value)
        assert fault.allowed.startswith("a mapping")
        assert fault.source == "dask.config.set"

    @pytest.mark.parametrize("value", [[], "local", None, [1], {"a": 1}])
    def test_auto_engines_that_are_not_names_are_a_fault(self, value):
        with dask.config.set({"hyperplane.engines.auto": value}):
            fault = _the_fault(config.auto_engines)
        assert fault == Fault(
            "hyperplane.engines.auto",
            repr(value),
            "a list of engine names",
            source="dask.config.set",
        )

    @pytest.mark.parametrize(
        ("path", "allowed", "near"),
        [
            ("pools.pool_16_16.coers", f"one of {POOL_KEYS}", "cores"),
            ("pools.pool_16_16.name", f"one of {POOL_KEYS}", ""),
            ("sizing.multipliers.huge", "one of light, medium, heavy", ""),
            ("sizing.families.fev_tasks", "one of few_tasks, many_tasks, parallel", "few_tasks"),
            ("sizing.split.form_gb", "one of from_gb, piece_gb, weights", "from_gb"),
            ("sizing.checks.full", "one of aggregation_ratio, full_fraction, aggregations", ""),
            ("memory.pauze", "one of target, spill, pause, terminate", "pause"),
            (
                "tuning.profiles.fast.servers",
                "one of direct_to_workers, server, one_process, environ",
                "server",
            ),
        ],
    )
    def test_an_unknown_key_is_a_fault_that_names_the_keys(self, path, allowed, near):
        advice = f"did you mean {near}?" if near else ""
        with dask.config.set({f"hyperplane.{path}": 0.9}):
            assert config.faults(ENGINES) == [
                UnknownKey(f"hyperplane.{path}", "0.9", allowed, advice, source="dask.config.set")
            ]

    def test_an_unknown_section_is_a_fault(self):
        allowed = "one of the sections email, engines, gpu_pools, history, jobs, memory, pools"
        with dask.config.set({"hyperplane.memroy": 0.9}):
            assert config.faults(ENGINES) == [
                Fault(
                    "hyperplane.memroy",
                    "0.9",
                    f"{allowed}, progress, runners, services, sizing, slack, tuning",
                    source="dask.config.set",
                )
            ]

    @pytest.mark.parametrize(
        ("path", "value", "allowed"),
        [
            ("pools.pool_16_16.cores", 0, "more than 0"),
            ("pools.pool_16_16.cores", "many", "a number"),
            ("pools.pool_16_16.ram_gb", float("inf"), "a finite number"),
            ("pools.pool_16_16.allocatable_cores", 0.5, "at least 1"),
            ("pools.pool_16_16.allocatable_cores", 17, "at most cores, the nominal 16"),
            ("pools.pool_16_16.allocatable_ram_gb", 16.5, "at most ram_gb, the nominal 16"),
            ("pools.pool_16_16.gpus", -1, "at least 0"),
            ("pools.pool_16_16.price_per_hour", -0.1, "at least 0"),
            ("pools.pool_16_16.alias", 3, "text"),
            ("pools.pool_16_16", 3, "a mapping of the keys of a pool"),
            ("sizing.multipliers.heavy", -48, "more than 0"),
            ("sizing.operations.my_op", "huge", "one of 'light', 'medium' or 'heavy'"),
            ("sizing.families.few_tasks", "16_128", "a list"),
            ("sizing.families.few_tasks", [], "at least 1 item"),
            ("sizing.families.few_tasks.0", [16128], "the name of a pool"),
            ("sizing.checks.full_fraction", 1.5, "at most 1"),
            ("sizing.split.weights.0", ["huge"], "one of 'light', 'medium' or 'heavy'"),
            ("memory.pause", 7, "a fraction in (0, 1], or False for never"),
            ("memory.pause", True, "a fraction in (0, 1], or False for never"),
            ("memory.pause", 0.5, "at least hyperplane.memory.spill (0.7)"),
            ("engines.local.fit", "loose", "one of 'fit' or 'exact'"),
            ("engines.local.reserve_fraction", 1, "less than 1"),
            ("engines.local.reserve_disk_gb", -1, "at least 0"),
            ("engines.local.oom_free_memory", 1, "less than 1"),
            ("engines.local.oom_free_memory", -0.5, "at least 0"),
            ("engines.local.single_process_cores", 0, "at least 1"),
            ("engines.local.single_process_cores", 2.5, "a whole number"),
            ("engines.local.start_method", "fork", "one of 'preload' or 'spawn'"),
            ("tuning.profile", "slow", "one of fast, dask"),
            ("tuning.profiles.fast", "none", "an object of type TuningProfile"),
            ("tuning.profiles.fast.server", "none", "a mapping"),
            ("tuning.profiles.fast.environ", 3, "a mapping"),
            ("engines.local.preload", "dask.dataframe", "a list"),
            ("engines.local.worker_ttl", "soon", "seconds from 0 to 1e+09, or text such as"),
            ("engines.local.worker_ttl", "", "seconds from 0 to 1e+09, or text such as"),
            ("engines.local.worker_ttl", -5, "seconds from 0 to 1e+09, or text such as"),
            ("gpu_pools.enable", True, "one of enabled, pools"),
            ("engines", 3, "a mapping of the sections of engines"),
            ("engines.auto", ["local", "slrum"], "a list of engine names: local, ssh, slurm"),
        ],
    )
    def test_an_invalid_value_is_a_fault(self, path, value, allowed):
        key = path.removesuffix(".0")
        with dask.config.set({f"hyperplane.{key}": value}):
            [fault] = config.faults(ENGINES)
        assert fault.where == f"hyperplane.{path}"
        assert fault.asked == repr(value[0] if key != path else value)
        assert allowed in fault.allowed
        assert fault.source == "dask.config.set"

    def test_a_number_as_pool_name_is_a_fault_with_advice(self):
        with dask.config.set({"hyperplane.pools": {1616: {"cores": 16}}}):
            fault = _the_fault(config.pools)
        assert (fault.where, fault.asked, fault.allowed) == (
            "hyperplane.pools.1616",
            "1616",
            "text",
        )
        assert "write it as pool_<cores>_<GB>" in fault.advice
        assert "16_16" in fault.advice

    def test_each_missing_key_of_a_pool_is_a_fault(self):
        with dask.config.set({"hyperplane.pools.pool_new": {"alias": "new"}}):
            faults = config.faults(ENGINES)
        wanted = ["cores", "ram_gb", "allocatable_cores", "allocatable_ram_gb"]
        assert [fault.where for fault in faults] == [
            f"hyperplane.pools.pool_new.{key}" for key in wanted
        ]
        assert {(fault.asked, fault.source) for fault in faults} == {("nothing", "dask.config.set")}

    def test_the_faults_of_all_pools_are_reported_together(self):
        changes = {
            "hyperplane.pools.pool_8_8.cores": -1,
            "hyperplane.pools.pool_16_16": 7,
            "hyperplane.pools.pool_32_32.ram_gb": "much",
        }
        with dask.config.set(changes), pytest.raises(ConfigError, match="3 faults") as caught:
            config.pools()
        assert {fault.where: fault.asked for fault in caught.value.faults} == {
            "hyperplane.pools.pool_8_8.cores": "-1",
            "hyperplane.pools.pool_16_16": "7",
            "hyperplane.pools.pool_32_32.ram_gb": "'much'",
        }

    def test_allocatable_sizes_are_not_compared_with_an_invalid_nominal_size(self):
        with dask.config.set({"hyperplane.pools.pool_16_16.cores": "many"}):
            assert [fault.where for fault in config.faults(ENGINES)] == [
                "hyperplane.pools.pool_16_16.cores"
            ]

    def test_a_shipped_value_made_invalid_by_another_key_names_the_shipped_file(self):
        with dask.config.set({"hyperplane.pools.pool_16_16.cores": 4}):
            [fault] = config.faults(ENGINES)
        assert fault.where == "hyperplane.pools.pool_16_16.allocatable_cores"
        assert fault.source == str(config_defaults.folder() / "pools.yaml")


GOOD_FILE = """
hyperplane:
  pools:
    pool_16_16:
      price_per_hour: 0.58
    POOL_32_32:
      allocatable_ram_gb: 26
    pool-8-8:
      allocatable-ram-gb: 4.5
    POOL_SITE:
      alias: site-big
      cores: 64
      ram_gb: 256
      allocatable_cores: 62.0
      allocatable_ram_gb: 240.0
  memory:
    pause: 0.85
  sizing:
    operations:
      my-join: heavy
      OCR: light
    checks:
      full-fraction: 0.5
"""


class TestInherited:
    """Settings of ``ray:ssh``, whose defaults are in the section ``ssh``."""

    def read(self):
        return config.engine_settings("ray:ssh", RaySshSettings)

    def test_hosts_of_the_platform_are_those_of_its_frameworks(self):
        ssh = {"hosts": ["one", "two"], "connect-timeout": 3, "idle_timeout": "1h"}
        with dask.config.set({"hyperplane.engines.ssh": ssh}):
            found = self.read()
            assert (found.hosts, found.connect_timeout) == (("one", "two"), 3)
            assert found.idle_timeout == "30 minutes"
            assert found.locate("hosts") == "hyperplane.engines.ssh.hosts"
            with dask.config.set({"hyperplane.engines.ray_ssh": {"hosts": ["three"]}}):
                found = self.read()
                assert (found.hosts, found.connect_timeout) == (("three",), 3)
                replaced = found.with_options({"port": 7})
                for settings in (found, replaced, pickle.loads(pickle.dumps(found))):
                    assert settings.locate("hosts") == "hyperplane.engines.ray_ssh.hosts"
                    assert settings.locate("port") == "hyperplane.engines.ssh.port"

    def test_a_fault_names_the_section_that_has_the_value(self):
        faulty = {"hyperplane.engines.ssh.port": 70000, "hyperplane.engines.ray_ssh.dashboard": 7}
        with dask.config.set(faulty), pytest.raises(ConfigError) as caught:
            self.read()
        assert {fault.where for fault in caught.value.faults} == faulty.keys()
        with (
            dask.config.set({"hyperplane.engines.ssh": 7}),
            pytest.raises(ConfigError, match=r"engines\.ssh = 7: expected a mapping"),
        ):
            self.read()


class TestFiles:
    @pytest.mark.process
    def test_a_yaml_file_changes_keys_and_adds_pools(self, in_new_process):
        shown = in_new_process("my_join", "My-Join", "ocr", files={"site.yaml": GOOD_FILE})
        assert shown["faults"] == []
        pools = shown["pools"]
        assert set(pools) == {*config.pools(), "site"}
        assert pools["16_16"] == {
            "alias": "hyperplane-med",
            "cores": 16,
            "ram_gb": 16,
            "allocatable_cores": 15,
            "allocatable_ram_gb": 12,
            "gpus": 0,
            "price_per_hour": 0.58,
            "note": "",
        }
        assert pools["32_32"]["allocatable_ram_gb"] == 26
        assert pools["8_8"]["allocatable_ram_gb"] == 4.5
        assert pools["site"]["allocatable_cores"] == 62
        assert pools["site"]["alias"] == "site-big"
        assert shown["memory"] == {"target": 0.6, "spill": 0.7, "pause": 0.85, "terminate": 0.95}
        assert shown["weights"] == {"my_join": "heavy", "My-Join": "heavy", "ocr": "light"}
        assert shown["checks"]["full_fraction"] == 0.5
        assert shown["checks"]["aggregation_ratio"] == 10

    def test_names_within_gateway_options_are_unchanged(self):
        mine = {
            "plan-options": {"my-memory": "ram_gb"},
            "options": {"on-nodes": {"a.b/c-d": "e-f"}},
        }
        with dask.config.set({"hyperplane.engines.gateway": mine}):
            found = config.engine_settings("gateway", GatewaySettings)
        assert found.plan_options == {"my_memory": "ram_gb"}
        assert found.options == {"on_nodes": {"a.b/c-d": "e-f"}}

    @pytest.mark.process
    def test_a_variable_takes_precedence_over_a_file(self, in_new_process):
        shown = in_new_process(
            files={"site.yaml": GOOD_FILE},
            DASK_HYPERPLANE__MEMORY__PAUSE="0.9",
            DASK_HYPERPLANE__POOLS__POOL_32_32__ALLOCATABLE_RAM_GB="25",
            DASK_HYPERPLANE__POOLS__POOL_SITE__PRICE_PER_HOUR="2.5",
        )
        assert shown["faults"] == []
        assert shown["memory"]["pause"] == 0.9
        assert shown["pools"]["32_32"]["allocatable_ram_gb"] == 25
        assert shown["pools"]["site"]["price_per_hour"] == 2.5
        assert shown["pools"]["site"]["cores"] == 64

    @pytest.mark.process
    def test_all_faults_of_a_file_are_reported(self, in_new_process):
        text = """
        hyperplane:
          pools:
            pool_16_16: {allocatable_cores: 64, coers: 3}
            POOL_32_32: {allocatable_ram_gb: -1}
            pool_site: {cores: 64, allocatable-cores: 62, allocatable_ram_gb: 240}
            pool_1_1: 11
          memory: {pause: 7, pauze: 0.8}
          sizing:
            multipliers: {light: 0}
            operations: {my_op: huge}
            families: {many_tasks: [32_32]}
          engines:
            auto: local
            local: {fit: loose, idle-timeout: later}
          memroy: {pause: 0.8}
        """
        shown = in_new_process(files={"site.yaml": text})
        found = {where: rest for _, where, *rest in shown["faults"]}
        expected = {
            "pools.pool_16_16.allocatable_cores": ["64", "at most cores, the nominal 16"],
            "pools.pool_16_16.coers": ["3", "one of alias, cores, ram_gb"],
            "pools.POOL_32_32.allocatable_ram_gb": ["-1", "more than 0"],
            "pools.pool_site.ram_gb": ["nothing", "a value; this key is required"],
            "pools.pool_1_1": ["11", "a mapping of the keys of a pool"],
            "memory.pause": ["7", "a fraction in (0, 1], or False for never"],
            "memory.pauze": ["0.8", "one of target, spill, pause, terminate"],
            "sizing.multipliers.light": ["0", "more than 0"],
            "sizing.operations.my_op": ["'huge'", "one of 'light', 'medium' or 'heavy'"],
            "sizing.families.many_tasks.0": ["3232", "the name of a pool"],
            "engines.auto": ["'local'", "a list of engine names"],
            "engines.local.fit": ["'loose'", "one of 'fit' or 'exact'"],
            "engines.local.idle_timeout": ["'later'", "seconds from 0 to 1e+09, or text such as"],
            "memroy": ["{'pause': 0.8}", "one of the sections"],
        }
        assert set(found) == {f"hyperplane.{where}" for where in expected}
        for where, (asked, allowed) in expected.items():
            assert found[f"hyperplane.{where}"][0] == asked
            assert found[f"hyperplane.{where}"][1].startswith(allowed)
        file = str(in_new_process.folder / "site.yaml")
        assert {source for source, *_ in shown["faults"]} == {file}
        assert shown["pools"].startswith("5 faults in the configuration:\n")
        assert f"{file}: hyperplane.pools.pool_1_1 = 11: expected a mapping" in shown["pools"]

    @pytest.mark.process
    def test_a_fault_names_the_file_that_sets_the_value(self, in_new_process):
        shown = in_new_process(
            files={
                "a.yaml": "hyperplane: {memory: {pause: 7, spill: 8, terminate: 6}}",
                "b.yaml": "hyperplane: {memory: {pause: 9, terminate: 6}}",
            },
            DASK_HYPERPLANE__MEMORY__TARGET="-1",
        )
        sources = {where.rpartition(".")[2]: source for source, where, *_ in shown["faults"]}
        assert sources == {
            "target": "environment variable DASK_HYPERPLANE__MEMORY__TARGET",
            "spill": str(in_new_process.folder / "a.yaml"),
            "pause": str(in_new_process.folder / "b.yaml"),
            "terminate": str(in_new_process.folder / "b.yaml"),
        }


class TestVariables:
    @pytest.mark.process
    def test_variables_set_keys(self, in_new_process):
        shown = in_new_process(
            "my_op",
            DASK_HYPERPLANE__MEMORY__PAUSE="0.85",
            DASK_HYPERPLANE__MEMORY__TERMINATE="false",
            DASK_HYPERPLANE__POOLS__POOL_16_16__PRICE_PER_HOUR="0.58",
            DASK_HYPERPLANE__SIZING__OPERATIONS__MY_OP="heavy",
        )
        assert shown["faults"] == []
        assert shown["memory"]["pause"] == 0.85
        assert shown["memory"]["terminate"] is False
        assert shown["pools"]["16_16"]["price_per_hour"] == 0.58
        assert shown["weights"] == {"my_op": "heavy"}

    @pytest.mark.process
    def test_all_faults_of_variables_are_reported(self, in_new_process):
        shown = in_new_process(
            DASK_HYPERPLANE__MEMORY__PAUSE="7",
            DASK_HYPERPLANE__POOLS__POOL_16_16__ALLOCATABLE_CORES="99",
            DASK_HYPERPLANE__POOLS__POOL_SITE__CORES="64",
            DASK_HYPERPLANE__POOLS__POOL_8_8="{'x': 2}",
            DASK_HYPERPLANE__SIZING__CHECKS__FOO="1",
            DASK_HYPERPLANE__ENGINES__LOCAL__FIT="loose",
        )
        missing = ["nothing", "a value; this key is required"]
        new, own = "POOLS__POOL_SITE__CORES", "hyperplane.pools.pool_site"
        expected = [
            ("MEMORY__PAUSE", "hyperplane.memory.pause", "7", "a fraction in (0, 1], or False"),
            (
                "POOLS__POOL_16_16__ALLOCATABLE_CORES",
                "hyperplane.pools.pool_16_16.allocatable_cores",
                "99",
                "at most cores, the nominal 16",
            ),
            (new, f"{own}.ram_gb", *missing),
            (new, f"{own}.allocatable_cores", *missing),
            (new, f"{own}.allocatable_ram_gb", *missing),
            ("POOLS__POOL_8_8", "hyperplane.pools.pool_8_8.x", "2", "one of alias, cores"),
            ("SIZING__CHECKS__FOO", "hyperplane.sizing.checks.foo", "1", "one of aggregation_r"),
            ("ENGINES__LOCAL__FIT", "hyperplane.engines.local.fit", "'loose'", "one of 'fit'"),
        ]
        found = {
            where: (source, asked, allowed) for source, where, asked, allowed, _ in shown["faults"]
        }
        assert set(found) == {where for _, where, *_ in expected}
        for variable, where, asked, allowed in expected:
            assert found[where][:2] == (f"environment variable DASK_HYPERPLANE__{variable}", asked)
            assert found[where][2].startswith(allowed)

    def test_a_value_set_in_python_takes_precedence_over_a_variable(self, monkeypatch):
        monkeypatch.setenv("DASK_HYPERPLANE__MEMORY__PAUSE", "0.9")
        with dask.config.set({"hyperplane.memory.pause": 7}):
            assert _the_fault(config.memory_policy).source == "dask.config.set"


@pytest.mark.parametrize("section", [["a"], "text", None])
@pytest.mark.parametrize("read", [config.pools, config_memory.memory_policy, config.auto_engines])
def test_a_root_that_is_not_a_mapping_is_an_error(section, read):
    with dask.config.set({"hyperplane": section}), pytest.raises(ConfigError) as caught:
        read()
    (fault,) = caught.value.faults
    assert (fault.where, fault.asked, fault.source) == (
        "hyperplane", repr(section), "dask.config.set",
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "words"),
    [("hyperplane: text", "hyperplane: 'text'"), ("hyperplane: {memory: [1]}", "memory: [1]")],
)
def test_a_section_that_dask_replaces_by_the_defaults_is_reported(tmp_path, text, words):
    (tmp_path / "a.yaml").write_text(text)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DASK_")}
    done = subprocess.run(
        [sys.executable, "-c", "import hyperplane"],
        env={**kept, "DASK_CONFIG": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    assert words in done.stderr
    assert "which is ignored; expected a mapping" in done.stderr
