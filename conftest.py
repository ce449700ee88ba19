"""Examples in pages and docstrings run as tests; ``scripts/examples.py`` says how.

Each process that runs tests has a temporary directory, a home and a folder of jobs that no other
process sees: neither what the user has set up, nor what tests beside it start.
"""

import gc
import multiprocessing.util
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import dask.config
import pytest
from scale import FULL, load_hypothesis_profile
from scaled_tests import has_scale
from shared_forkserver import PRELOAD, SharedForkserver

from scripts.examples import docstrings, pages

pytest_collect_file = (pages + docstrings).pytest()

# jsonschema, and nbformat with it, builds a grammar of addresses as it is imported, where this is
# installed: a second and a half in each process, and no test needs it.
sys.modules.setdefault("rfc3987_syntax", None)

_JOBS = "DASK_HYPERPLANE__JOBS__HOME"
_FOLDER = pytest.StashKey[str]()
_private = pytest.MonkeyPatch()


def pytest_configure(config):
    load_hypothesis_profile()
    config.pluginmanager.register(SharedForkserver())


def pytest_sessionstart(session):
    # Not a fixture: examples have none.
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    # Short, because the path of a socket may have a hundred characters and no more: not within
    # the folder of the process that starts this one.
    top = os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix=f"hp-{worker}-", dir=top)
    session.config.stash[_FOLDER] = folder
    Path(folder).chmod(0o755)  # some tests run programs as another user
    # What tests build or download once stays where the user has it.
    home = Path.home()
    for variable, name in {
        "XDG_CACHE_HOME": home / ".cache",
        "HYPERPLANE_ENGINES": home / ".cache" / "hyperplane" / "engines",
        # Where pytest keeps the folders of the last three runs, to look at after a failure.
        "PYTEST_DEBUG_TEMPROOT": tempfile.gettempdir(),
    }.items():
        if variable not in os.environ:
            _private.setenv(variable, str(name))
    # Multiprocessing removes its own when the interpreter ends, after this folder is gone.
    multiprocessing.util.get_temp_dir()
    for variable, name in {"HOME": "home", "TMPDIR": "tmp", _JOBS: "jobs"}.items():
        path = Path(folder, name)
        path.mkdir()
        _private.setenv(variable, str(path))
    _private.setattr(tempfile, "tempdir", os.environ["TMPDIR"])
    # A shell starts programs in the background with Ctrl-C ignored, and these their own.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _private.setenv("DASK_HYPERPLANE__JOBS__LINGER", "5s")
    _private.setenv("DASK_HYPERPLANE__JOBS__RETRY_WAIT", "0.1s")
    # More processes than cores run tests: threads in each would cost a tenth of the time. The full
    # scale has them, as users do.
    if worker and not FULL:
        _compute_in_one_thread()
    # Most programs that tests start use no dataframe: two seconds of processor time for each.
    _private.setenv(PRELOAD, "[]")
    dask.config.refresh()


def _compute_in_one_thread():
    import pyarrow

    pyarrow.set_cpu_count(1)
    # Not for the programs that tests start: each worker of a cluster sets its own number.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLARS_MAX_THREADS", "1")
        import polars

        polars.thread_pool_size()  # this reads it


def pytest_itemcollected(item):
    # Reading the source of all tests again takes a second that the small scale need not spend.
    if FULL and has_scale(item):
        item.add_marker("scaled")


#: Files that have such tests begin first: at the end, all other processes would wait for them.
_LONG = ("slow", "cluster", "process")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    ranks = {}
    for item in items:
        marks = [rank for rank, mark in enumerate(_LONG) if item.get_closest_marker(mark)]
        ranks[item.path] = min([len(_LONG), ranks.get(item.path, len(_LONG)), *marks])
    items.sort(key=lambda item: ranks[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    # Half a million objects that stay: not to be searched for garbage again and again meanwhile,
    # nor in each test.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish(session):
    from hyperplane.jobs import supervisor_client

    if pid := supervisor_client.supervisor_pid():
        with suppress(ProcessLookupError):  # it lingers for some seconds only
            os.kill(pid, signal.SIGTERM)
    _private.undo()
    shutil.rmtree(session.config.stash[_FOLDER], ignore_errors=True)


@pytest.fixture
def jobs_apart():
    """The folder of jobs."""
    return Path(os.environ[_JOBS])


@pytest.fixture
def usual_preload():
    """The programs that a test starts have the workers that users have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(PRELOAD)
        dask.config.refresh()
        yield
    dask.config.refresh()
