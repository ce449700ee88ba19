"""Run examples of pages and docstrings as tests, and isolate the processes that run tests.

``scripts/examples.py`` defines the examples. Each test process has a separate temporary directory,
home and folder of jobs, so that tests find neither the user's files nor those of parallel tests.
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
import networks
import pytest
from scale import FULL, load_hypothesis_profile
from scaled_tests import has_scale
from shared_forkserver import PRELOAD, SharedForkserver

from scripts.examples import docstrings, pages

_collect_examples = (pages + docstrings).pytest()

# If this package is installed, the import of jsonschema, and so of nbformat, builds a grammar that
# takes a second and a half in each process and that no test needs.
sys.modules.setdefault("rfc3987_syntax", None)

_JOBS = "DASK_HYPERPLANE__JOBS__HOME"
_FOLDER = pytest.StashKey[str]()
_private = pytest.MonkeyPatch()


def pytest_collect_file(file_path, parent):
    # Two thirds of the modules have no examples; parsing them takes half a second in each process.
    is_module = file_path.suffix == ".py" and not file_path.name.startswith("test_")
    if is_module and b">>>" not in file_path.read_bytes():
        return None
    return _collect_examples(file_path, parent)


def pytest_configure(config):
    networks.fail_if_missing()
    load_hypothesis_profile()
    config.pluginmanager.register(SharedForkserver())


def pytest_sessionstart(session):
    # Not a fixture, as examples have no fixtures.
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    # Not in the folder of the process that starts this one: the path must be short, because paths
    # of sockets have at most about a hundred characters.
    top = os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix=f"hp-{worker}-", dir=top)
    session.config.stash[_FOLDER] = folder
    Path(folder).chmod(0o755)  # some tests run programs as another user
    # Files that tests build or download once are kept in the user's cache.
    home = Path.home()
    for variable, name in {
        "XDG_CACHE_HOME": home / ".cache",
        "HYPERPLANE_ENGINES": home / ".cache" / "hyperplane" / "engines",
        # In this folder pytest keeps the folders of the last three runs, for a look at failures.
        "PYTEST_DEBUG_TEMPROOT": tempfile.gettempdir(),
    }.items():
        if variable not in os.environ:
            _private.setenv(variable, str(name))
    # Created before TMPDIR is set: multiprocessing removes its folder when the interpreter ends,
    # which is after the folder of this session is removed.
    multiprocessing.util.get_temp_dir()
    for variable, name in {"HOME": "home", "TMPDIR": "tmp", _JOBS: "jobs"}.items():
        path = Path(folder, name)
        path.mkdir()
        _private.setenv(variable, str(path))
    _private.setattr(tempfile, "tempdir", os.environ["TMPDIR"])
    # As Jupyter Server does for kernels: processes of pytest-xdist have no file, by whose name
    # earlier runs of a program are recognized.
    _private.setenv("JPY_SESSION_NAME", "tests.ipynb")
    # A shell starts background programs with SIGINT ignored, which their child processes inherit.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _private.setenv("DASK_HYPERPLANE__JOBS__LINGER", "5s")
    _private.setenv("DASK_HYPERPLANE__JOBS__RETRY_WAIT", "0.1s")
    # More processes than cores run tests, so threads in each would cost a tenth of the time. The
    # full scale uses threads, as users do.
    if worker and not FULL:
        _compute_in_one_thread()
    # Most programs that tests start need no dataframes, whose import takes two seconds of CPU time.
    _private.setenv(PRELOAD, "[]")
    dask.config.refresh()


def _compute_in_one_thread():
    import pyarrow

    pyarrow.set_cpu_count(1)
    # Not inherited by programs that tests start: each worker of a cluster sets its own number.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLARS_MAX_THREADS", "1")
        import polars

        polars.thread_pool_size()  # reads the variable


def pytest_itemcollected(item):
    networks.add_marks(item)
    # Only at the full scale, as reading the source of all tests takes a second.
    if FULL and has_scale(item):
        item.add_marker("scaled")


#: Marks of long tests. Their files start first, so that no process runs one of them alone at the
#: end.
_LONG = ("slow", "cluster", "process")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    ranks = {}
    for item in items:
        names = {mark.name for mark in item.iter_markers()}
        marks = [rank for rank, mark in enumerate(_LONG) if mark in names]
        ranks[item.path] = min([len(_LONG), ranks.get(item.path, len(_LONG)), *marks])
    items.sort(key=lambda item: ranks[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    # Collection creates half a million objects that remain. They are frozen, so that the garbage
    # collector searches them neither now nor in each test.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish(session):
    from hyperplane.jobs import supervisor_client

    if pid := supervisor_client.supervisor_pid():
        with suppress(ProcessLookupError):  # an idle supervisor ends after some seconds
            os.kill(pid, signal.SIGTERM)
    _private.undo()
    shutil.rmtree(session.config.stash[_FOLDER], ignore_errors=True)


@pytest.fixture
def jobs_apart():
    """The folder of jobs of this test process."""
    return Path(os.environ[_JOBS])


@pytest.fixture
def usual_preload():
    """Let workers in programs of a test preload the same modules as workers of users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(PRELOAD)
        dask.config.refresh()
        yield
    dask.config.refresh()
