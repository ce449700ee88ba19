"""Which modules must be sent to processes without this package."""

from __future__ import annotations

from hyperplane.clusters.dask import recovery
from hyperplane.core.by_value import find_own_imports
from hyperplane.guard import busy, memory_plugins, oom_retry, stalls


def test_imports_of_imported_modules_are_found() -> None:
    names = {module.__name__.rpartition(".")[2] for module in find_own_imports(oom_retry)}
    assert names == {
        "large_inputs",
        "memory_advice",
        "memory_causes",
        "memory_growth",
        "memory_record",
        "memory_report",
        "nannies",
        "node_memory",
        "oom_retry",
        "server_calls",
        "single_threads",
        "stall_causes",
        "worker_limits",
    }


def test_a_module_that_imports_within_functions_needs_no_other() -> None:
    assert find_own_imports(busy) == (busy,)


def test_all_modules_of_the_plugins_are_sent() -> None:
    """None of them loads a part of the package that needs more than Dask."""
    sent = {module.__name__ for module in (*recovery.MODULES, *memory_plugins.MODULES)}
    assert {stalls.__name__, "hyperplane.core.dask_internals.task_errors"} <= sent
    parts = {name.rpartition(".")[0] for name in sent}
    assert parts == {"hyperplane.guard", "hyperplane.core.dask_internals"}
