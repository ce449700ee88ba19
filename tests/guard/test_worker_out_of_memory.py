"""The error in other processes, with and without this package."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest
from distributed import KilledWorker

from hyperplane.errors import HyperplaneError, WorkerOutOfMemory
from hyperplane.guard.memory_explainer import _ErrorLoader, _ErrorRecipe
from hyperplane.guard.worker_out_of_memory import pickle_loader

STATE = {
    "message": "the text",
    "key": ("x", 1),
    "last_worker": SimpleNamespace(address="tcp://w"),
    "operation": "sum",
    "peak": 3,
    "limit": 2,
    "inputs": 1,
    "attempts": 4,
    "cause": "terminate",
    "fix": "initialize_cluster(..., nthreads=1)",
}


def test_the_error_is_caught_by_code_for_the_errors_of_dask_and_python() -> None:
    error = pickle.loads(pickle.dumps(_ErrorRecipe(_ErrorLoader(pickle_loader()), STATE)))
    assert type(error) is WorkerOutOfMemory
    assert {KilledWorker, MemoryError, HyperplaneError} < set(type(error).__mro__)
    assert (error.task, error.allowed_failures) == (("x", 1), 3)
    assert error.last_worker.address == "tcp://w"
    error.add_note("a note")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is WorkerOutOfMemory
    assert str(again) == "the text"
    assert vars(again) == vars(error)
    assert (again.operation, again.peak, again.limit, again.inputs) == ("sum", 3, 2, 1)
    assert again.__notes__ == ["a note"]
    assert (again.attempts, again.cause, again.fix) == (4, "terminate", STATE["fix"])


@pytest.mark.process
def test_without_the_package_it_is_a_killed_worker_with_a_note() -> None:
    program = (
        "import pickle, sys; sys.modules['hyperplane'] = None\n"
        "error = pickle.load(sys.stdin.buffer)\n"
        "print(type(error).__name__, error.task, error.last_worker.address, error.__notes__)"
    )
    pickled = pickle.dumps(_ErrorRecipe(_ErrorLoader(pickle_loader()), STATE))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=pickled, capture_output=True, timeout=120, check=True)
    assert done.stdout.decode() == "KilledWorker ('x', 1) tcp://w ['the text']\n"


@pytest.mark.process
def test_the_public_module_loads_distributed_only_for_this_error() -> None:
    program = (
        "import sys, hyperplane.errors\n"
        "assert 'distributed' not in sys.modules\n"
        "assert hyperplane.errors.WorkerOutOfMemory.__module__ == 'hyperplane.errors'\n"
        "assert 'distributed' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], timeout=120, check=True)


def test_unknown_names_of_the_module_are_errors() -> None:
    import hyperplane.errors

    with pytest.raises(AttributeError, match="OutOfThings"):
        _ = hyperplane.errors.OutOfThings
