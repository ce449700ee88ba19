"""Examples in pages and docstrings run as tests; ``scripts/examples.py`` says how.

No test sees the jobs of whoever runs the tests: they have a folder of their own.
"""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import dask.config
import pytest

from scripts.examples import docstrings, pages

pytest_collect_file = (pages + docstrings).pytest()

_HOME = "DASK_HYPERPLANE__JOBS__HOME"
_apart = pytest.MonkeyPatch()


def pytest_sessionstart():
    # Not a fixture: examples have none.
    _apart.setenv(_HOME, tempfile.mkdtemp(prefix="hyperplane-tests-"))
    _apart.setenv("DASK_HYPERPLANE__JOBS__LINGER", "5s")
    _apart.setenv("DASK_HYPERPLANE__JOBS__RETRY_WAIT", "0.1s")
    dask.config.refresh()


def pytest_sessionfinish():
    from hyperplane.jobs import wake

    if pid := wake.running():
        os.kill(pid, signal.SIGTERM)
    shutil.rmtree(os.environ[_HOME], ignore_errors=True)
    _apart.undo()


@pytest.fixture
def jobs_apart():
    """The folder of jobs."""
    return Path(os.environ[_HOME])
