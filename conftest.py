"""Examples in pages and docstrings run as tests; ``scripts/examples.py`` says how.

No test sees the jobs of whoever runs the tests: they have a folder of their own.
"""

import os
import signal

import dask.config
import pytest

from scripts.examples import docstrings, pages

pytest_collect_file = (pages + docstrings).pytest()


@pytest.fixture(scope="session", autouse=True)
def jobs_apart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    variables = {
        "DASK_HYPERPLANE__JOBS__HOME": str(folder),
        "DASK_HYPERPLANE__JOBS__LINGER": "5s",
        "DASK_HYPERPLANE__JOBS__RETRY_WAIT": "0.1s",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        dask.config.refresh()
        yield folder
        from hyperplane.jobs import wake

        if pid := wake.running():
            os.kill(pid, signal.SIGTERM)
    dask.config.refresh()
