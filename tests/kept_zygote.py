"""Keep the process that local workers are forked from between tests.

It ends with the last cluster of a program, and the next cluster starts another one: two seconds of
processor time for imports. Tests have one cluster after the other, so each would pay it. A test
marked ``own_zygote`` finds none that runs, and its own ends as it does for users.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from hyperplane.engines.local import zygote


class KeptZygote:
    """A plugin of pytest that is one more user of the zygote."""

    def __init__(self) -> None:
        self._acquire = zygote.acquire
        self._environment: Mapping[str, str] | None = None
        self._keeps_none = False
        self._folder = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        self._folder = tempfile.gettempdir()
        zygote.acquire = self.acquire

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        zygote.acquire = self._acquire
        self.end()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._keeps_none = item.get_closest_marker("own_zygote") is not None
        if self._keeps_none:
            self.end()

    def acquire(self, modules: Sequence[str], environment: Mapping[str, str]) -> bool:
        if self._keeps_none:
            return self._acquire(modules, environment)
        if self._environment not in (None, environment) and zygote._users == 1:
            self.end()
        with self._in_the_folder_of_all():
            acquired = self._acquire(modules, environment)
        if acquired and self._environment is None:
            self._environment = environment
            zygote._users += 1
        return acquired

    @contextmanager
    def _in_the_folder_of_all(self) -> Iterator[None]:
        """Where its socket stays: many tests have a temporary directory of their own."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", self._folder)
            patch.setattr(tempfile, "tempdir", self._folder)
            yield

    def end(self) -> None:
        """End it, where no cluster uses it."""
        if self._environment is not None:
            self._environment = None
            with self._in_the_folder_of_all():
                zygote.release()
