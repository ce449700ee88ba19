"""Ship local modules of the program to the scheduler and the workers of a started cluster."""

from __future__ import annotations

from hyperplane.clusters.engine import StartedCluster
from hyperplane.core.by_value import pickled_by_value
from hyperplane.guard import shipped_modules
from hyperplane.guard.module_archive import ModuleArchive


def ship_modules(archive: ModuleArchive, started: StartedCluster) -> None:
    """Register the plugins that unpack an archive; workers that come later get it, too."""
    # Pickled by value, because the workers may not have this package.
    with pickled_by_value(shipped_modules):
        # The scheduler first: it loads the graphs that clients send.
        started.client.register_plugin(
            shipped_modules.ModulesOnScheduler(archive.data, archive.digest, archive.names)
        )
        started.client.register_plugin(
            shipped_modules.ModulesOnWorkers(archive.data, archive.digest)
        )
