"""Import paths and settings of Orca."""

from __future__ import annotations

import pytest
from dask.system import CPU_COUNT

import hyperplane.orca
import hyperplane.orca.data.pandas as orca_pandas
from hyperplane.errors import (
    EngineUnavailable,
    RequestError,
)
from hyperplane.ml import SharedValue, XShards, read_csv
from hyperplane.orca import OrcaContext


def test_import_path_of_orca():
    import hyperplane.orca.common
    import hyperplane.orca.data
    import hyperplane.orca.data.shard

    assert hyperplane.orca.data.XShards is hyperplane.orca.data.shard.SparkXShards is XShards
    assert hyperplane.orca.data.SharedValue is SharedValue
    assert hyperplane.orca.common.init_orca_context is hyperplane.orca.init_orca_context
    assert orca_pandas.read_csv is read_csv


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pandas_read_backend", "polars"),
        ("train_data_store", "DISK"),
        ("log_output", 1),
        ("_eager_mode", "no"),
        ("pandas_backend", "pandas"),
    ],
)
def test_invalid_settings(name, value):
    with pytest.raises(RequestError, match=f"OrcaContext.{name}"):
        setattr(OrcaContext, name, value)


def test_faults_of_init_orca_context_together():
    with pytest.raises(RequestError) as caught:
        hyperplane.orca.init_orca_context("yarn-client", cores=0, memory="two", num_nodes=0)
    assert [fault.where for fault in caught.value.faults] == [
        "cluster_mode",
        "cores",
        "num_nodes",
        "memory",
    ]
    with pytest.raises(RequestError, match="num_nodes = 2: expected 1"):
        hyperplane.orca.init_orca_context("local", num_nodes=2)


@pytest.mark.parametrize(
    ("mode", "engine"),
    [
        ("k8s-client", "kubernetes"),
        ("standalone", "ssh"),
        ("slurm", "slurm"),
        ("spark-submit", "auto"),
        (None, "local"),
    ],
)
def test_arguments_of_init_orca_context(monkeypatch, capsys, mode, engine):
    class Started:
        status = "running"

        def close(self):
            self.status = "closed"

    calls = []
    monkeypatch.setattr(
        "hyperplane.orca.context.initialize_cluster",
        lambda **arguments: calls.append(arguments) or (Started(), Started()),
    )
    monkeypatch.setattr("hyperplane.orca.context.CPU_COUNT", 4)
    monkeypatch.setattr("hyperplane.orca.context._find_usable_memory", lambda: 20 * 10**9)
    nodes = 1 if mode is None else 3
    with pytest.warns(UserWarning, match="no effect without Spark: conf"):
        client = hyperplane.orca.init_orca_context(
            mode, 4, "10g", nodes, driver_memory="2g", conf={"spark.ui": "false"}, timeout=60
        )
    assert hyperplane.orca.init_orca_context(mode, 4, "10g", nodes) is client
    assert capsys.readouterr().err == ""
    assert hyperplane.orca.init_orca_context() is client
    assert capsys.readouterr().err == ""
    assert hyperplane.orca.init_orca_context(mode, 1, "10g", nodes) is client
    assert "returns the running cluster (cores=4, memory='10g'" in capsys.readouterr().err
    hyperplane.orca.stop_orca_context()
    hyperplane.orca.stop_orca_context()
    assert client.status == "closed"
    assert calls == [
        {
            "num_workers": nodes,
            "engine": engine,
            "nprocs": 4,
            "nthreads": 1,
            "cores_per_worker": 4,
            "ram_gb_per_proc": 2.5,
            "logging": "quiet",
            "scheduler_ram": "2G",
            "timeout": 60,
        }
    ]
    plan = hyperplane.plan_cluster(**{**calls[0], "engine": "local"})
    assert plan.request.num_workers == nodes
    assert capsys.readouterr().out == "Stopping orca context\n"


@pytest.mark.parametrize(
    ("cores", "memory", "expected"),
    [
        (2, "4g", (2, 2.0)),
        (16, "4g", (4, 1.0)),
        ("*", "4g", (4, 1.0)),
        (None, "9g", (4, 2.0)),
        (8, "900g", (4, 2.0)),
    ],
)
def test_a_local_context_fits_this_machine(monkeypatch, capsys, cores, memory, expected):
    calls = []

    class Started:
        status = "running"

        def close(self):
            """Nothing runs."""

    monkeypatch.setattr("hyperplane.orca.context.CPU_COUNT", 4)
    monkeypatch.setattr("hyperplane.orca.context._find_usable_memory", lambda: 8 * 10**9)
    monkeypatch.setattr(
        "hyperplane.orca.context.initialize_cluster",
        lambda **arguments: calls.append(arguments) or (Started(), Started()),
    )
    for options in ({}, {"local_fit": "exact"}):
        hyperplane.orca.init_orca_context("LOCAL", cores, memory, **options)
        hyperplane.orca.stop_orca_context()
    notes = capsys.readouterr().err
    is_larger = (isinstance(cores, int) and cores > 4) or memory in ("9g", "900g")
    assert ("; this machine gives 4 cores and" in notes) == is_larger
    fitted, exact = calls
    assert (fitted["nprocs"], fitted["ram_gb_per_proc"]) == expected
    assert exact["nprocs"] == (cores if isinstance(cores, int) else 4)
    assert exact["ram_gb_per_proc"] * exact["nprocs"] == float(memory.removesuffix("g"))


class Started:
    """A client and a cluster in one."""

    status = "running"

    def close(self):
        """Nothing runs."""


@pytest.fixture
def planned(monkeypatch):
    """Return a list to which plans of ``init_orca_context`` are added; nothing is started."""
    plans = []

    def initialize(**arguments):
        plans.append(hyperplane.plan_cluster(**arguments))
        return Started(), Started()

    monkeypatch.setattr("hyperplane.orca.context.initialize_cluster", initialize)
    yield plans
    hyperplane.orca.stop_orca_context()


def test_more_memory_than_this_machine_has(planned, monkeypatch):
    monkeypatch.setattr("hyperplane.platforms.local.machine.free_ram", lambda: 8 * 10**9)
    hyperplane.orca.init_orca_context("local", cores=8, memory="900g")
    (plan,) = planned
    assert plan.request.num_workers == 1
    assert plan.worker.nprocs == min(8, CPU_COUNT)
    assert 5e8 < plan.worker.total_ram < 8e9


def test_arguments_of_published_programs_for_kubernetes(planned):
    arguments = {
        "cluster_mode": "k8s-client",
        "cores": 4,
        "memory": "10g",
        "num_nodes": 2,
        "driver_cores": 1,
        "driver_memory": "3g",
        "extra_python_lib": "model.py",
        "extra_memory_for_ray": "30g",
        "master": "k8s://https://127.0.0.1:8443",
        "container_image": "spark:3",
        "conf": {"spark.kubernetes.namespace": "default"},
    }
    with (
        pytest.warns(UserWarning, match=r"container_image, .*conf; give an image with Dask"),
        pytest.raises(RequestError, match=r"hyperplane\.engines\.kubernetes\.image is not set"),
    ):
        hyperplane.orca.init_orca_context(**arguments)
    with pytest.warns(UserWarning, match="no effect without Spark: "):
        hyperplane.orca.init_orca_context(**arguments, engine_options={"image": "dask:1"})
    (plan,) = planned
    assert (plan.engine, plan.request.num_workers) == ("kubernetes", 2)
    assert (plan.request.nprocs, plan.request.ram_gb_per_proc) == (4, 2.5)
    assert plan.request.scheduler_ram == "3G"


def test_spark_and_ray_are_refused_with_a_reason():
    for get in (OrcaContext.get_spark_context, OrcaContext.get_ray_context):
        with pytest.raises(EngineUnavailable, match="Dask cluster"):
            get()
