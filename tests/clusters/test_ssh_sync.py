"""Local modules on real hosts, whose scheduler and workers do not have them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from services import restart
from services_ssh import SMALL, HostNetwork, network, nothing_left, surroundings

import hyperplane

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["network", "nothing_left", "surroundings"]  # fixtures


def test_sync_ships_what_the_caller_imports(
    network: HostNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "synced_tools.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import synced_tools

    # The test module itself is on the stack, and its global names are those that count.
    monkeypatch.setitem(globals(), "synced_tools", synced_tools)
    client, cluster = hyperplane.initialize_cluster(engine="ssh", **SMALL, sync=True)
    with cluster, client:
        # As in a collection, whose graph the scheduler loads.
        assert client.gather(client.map(synced_tools.double, range(4))) == [0, 2, 4, 6]
        restart(client)
        assert client.submit(synced_tools.double, 5).result() == 10
    monkeypatch.delitem(sys.modules, "synced_tools")
