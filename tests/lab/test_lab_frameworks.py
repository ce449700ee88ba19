"""The pane lists and stops real clusters of Ray and Spark that a kernel has started."""

from __future__ import annotations

import importlib.util

import pytest
from lab_server import Answer, Kernel, LabServer
from services import until

from hyperplane.clusters import records

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

#: What a notebook does, with the options of an engine.
START = """
import hyperplane, json
client, cluster = hyperplane.initialize_cluster(
    num_workers=1, nprocs=2, nthreads=1, local_fit="exact", timeout=280, name="of-kernel",
    ram_gb_per_proc={ram_gb}, engine="{engine}", engine_options={options!r},
)
"""


def needs(package: str) -> pytest.MarkDecorator:
    """Skip a test before its server starts."""
    is_missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(is_missing, reason=f"{package} is not installed")


@pytest.mark.parametrize(
    ("engine", "ram_gb", "advice"),
    [
        pytest.param("ray:local", 0.5, "get_ray_cluster", marks=[pytest.mark.ray, needs("ray")]),
        pytest.param(
            "spark:local", 0.95, "keeps its size", marks=[pytest.mark.spark, needs("pyspark")]
        ),
    ],
)
def test_a_cluster_of_a_kernel_is_listed_and_stopped(
    server: LabServer, engine: str, ram_gb: float, advice: str
) -> None:
    if engine == "ray:local":
        options = {"dashboard": False}
    else:
        from spark_properties import PROPERTIES

        options = {"properties": PROPERTIES}
    kernel = Kernel(server)
    try:
        kernel.run(START.format(engine=engine, ram_gb=ram_gb, options=options), 300)
        [record] = [each for each in records.read_all() if each.name == "of-kernel"]
        until(lambda: "of-kernel" in server.clusters())
        model = server.clusters()["of-kernel"]
        assert model["scheduler_address"] == record.scheduler
        assert (model["workers"], model["cores"]) == (record.workers, record.threads)
        path = f"dask/clusters/{model['id']}"
        with pytest.raises(Answer) as refused:
            server.request("PATCH", path, {"workers": 3})
        assert advice in refused.value.message
        server.request("DELETE", path)
        assert server.clusters() == {}
        assert not [each for each in records.read_all() if each.name == "of-kernel"]
        until(lambda: kernel.run("print(cluster.status)") == "closed\n")
    finally:
        server.request("DELETE", f"api/kernels/{kernel.id}")
