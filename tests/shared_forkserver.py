"""Keep one forkserver for the local clusters of all tests.

Normally the forkserver ends with the last cluster of a program, and the next cluster starts a new
one, which costs two seconds of CPU time for imports. Tests run one cluster after the other, so each
would need those seconds. A test marked ``own_forkserver`` starts without a forkserver, and the one
that it starts imports only the modules of the configuration, and ends as usual.

Programs that tests start do not use it: ``conftest.py`` sets that their workers preload no modules,
unless the test uses :func:`conftest.usual_preload`.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hyperplane.clusters import records
from hyperplane.clusters.dask.local import forkserver

#: Environment variable of the Python processes that tests start.
PRELOAD = "DASK_HYPERPLANE__ENGINES__LOCAL__PRELOAD"
#: The value in ``config/engines.yaml``.
_USUAL = ("dask.dataframe", "pyarrow.parquet")


class SharedForkserver:
    """Pytest plugin that counts as one more user of the forkserver."""

    def __init__(self) -> None:
        self._acquire = forkserver.acquire
        self._environment: Mapping[str, str] | None = None
        self._keeps_none = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        # For its socket, because many tests have a separate temporary directory.
        self._folder = tempfile.TemporaryDirectory(prefix="z-")
        forkserver.acquire = self.acquire

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        forkserver.acquire = self._acquire
        self.end()
        if self._folder is not None:
            self._folder.cleanup()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._keeps_none = item.get_closest_marker("own_forkserver") is not None
        if self._keeps_none:
            self.end()

    def acquire(self, modules: Sequence[str], environment: Mapping[str, str]) -> bool:
        if self._keeps_none:
            return self._acquire(modules, environment)
        with self._lock:  # some tests start clusters in several threads
            if self._environment not in (None, environment) and forkserver._users == 1:
                self.end()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(records, "process_folder", self.process_folder)
                acquired = self._acquire([*modules, *_USUAL], environment)
            if acquired and self._environment is None:
                self._environment = environment
                forkserver._users += 1
            return acquired

    def process_folder(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name)

    def end(self) -> None:
        """End the forkserver if no cluster uses it."""
        if self._environment is not None:
            self._environment = None
            forkserver.release()
