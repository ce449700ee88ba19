"""Local modules that are shipped to the workers: before tasks, after restarts, to later workers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from services import restart

from hyperplane.clusters.dask.module_shipping import ship_modules
from hyperplane.clusters.engine import StartedCluster
from hyperplane.guard.module_archive import pack_modules
from hyperplane.guard.preflight.program_modules import find_local_module

pytestmark = pytest.mark.cluster


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Any]:
    """A module that this process has loaded, and that new processes do not find."""
    (tmp_path / "shipped_tools.py").write_text("def double(x):\n    return 2 * x\n")
    sys.path.insert(0, str(tmp_path))
    import shipped_tools

    sys.path.remove(str(tmp_path))
    yield shipped_tools
    del sys.modules["shipped_tools"]


@pytest.mark.usefixtures("forked_workers")
def test_modules_reach_all_workers_and_leave_nothing(module: Any, tmp_path: Path) -> None:
    local = find_local_module("shipped_tools")
    assert local is not None
    archive = pack_modules([local])
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            local_directory=str(tmp_path / "scratch"),
        ) as cluster,
        Client(cluster) as client,
    ):
        # A task that needs the module would end the connection of the worker, again and again.
        found = client.run(lambda: importlib.util.find_spec("shipped_tools"))
        assert set(found.values()) == {None}
        ship_modules(archive, StartedCluster(client, cluster))
        assert client.submit(module.double, 2).result() == 4
        restart(client)
        assert client.submit(module.double, 3).result() == 6
        cluster.scale(2)
        client.wait_for_workers(2, timeout=120)
        addresses = list(client.nthreads())
        results = [
            client.submit(module.double, 4, workers=[each], pure=False) for each in addresses
        ]
        assert client.gather(results) == [8, 8]
        files = set(client.run(lambda: sys.modules["shipped_tools"].__file__).values())
        assert all(archive.digest[:16] in str(file) for file in files)
    assert list(tmp_path.rglob("hyperplane-modules-*")) == []
