"""When worker processes are forked from the forkserver, and when they are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from multiprocessing import forkserver as python_forkserver
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from dask_notices import without_notices
from scale import FULL
from subprograms import dead, wait_until

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.dask.local import forkserver
from hyperplane.clusters.dask.local.cluster import GuardedNanny
from hyperplane.clusters.dask.local_process import worker_preloads

pytestmark = [
    pytest.mark.usefixtures("few_imports"),
    pytest.mark.cluster,
    pytest.mark.own_forkserver,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the forkserver is for Linux"),
]


ONE: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "local_fit": "exact",
}


def child(queue: object) -> None:
    queue.put((os.getppid(), "json.tool" in sys.modules, os.environ.get("MARK")))  # type: ignore[attr-defined]


def ask() -> tuple[int, bool, str | None]:
    context = get_context("forkserver")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    answer = queue.get(timeout=120)
    process.join()
    process.close()
    queue.close()
    queue.join_thread()
    return answer  # type: ignore[no-any-return]


def test_the_forkserver_has_modules_and_variables_and_ends_with_its_last_user() -> None:
    before = dict(os.environ)
    # A module that cannot be imported is ignored.
    modules = ["no_such_module_at_all", "json.tool"]
    assert forkserver.acquire(modules, {"MARK": "1"})
    try:
        pid, loaded, mark = ask()
        assert (loaded, mark) == (True, "1")
        assert dict(os.environ) == before
        assert not forkserver.acquire(modules, {"MARK": "2"}), "it has other variables"
        assert forkserver.acquire(modules, {"MARK": "1"})
        forkserver.release()
        assert ask()[0] == pid
    finally:
        forkserver.release()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_forkserver_of_the_program_is_left_alone() -> None:
    python_forkserver.ensure_running()
    try:
        assert not forkserver.acquire([], {})
        assert ask()[1] is False
    finally:
        vars(python_forkserver)["_forkserver"]._stop()


def test_no_forkserver_on_systems_other_than_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not forkserver.acquire([], {})


@pytest.mark.skipif(not FULL, reason="a test of workers below counts threads, too: at full scale")
def test_the_forkserver_has_one_thread_after_its_imports() -> None:
    """In a separate program, without modules that other tests have imported."""
    program = (
        "import os\n"
        "from hyperplane.clusters.dask.local import forkserver\n"
        "import multiprocessing.forkserver\n"
        "assert forkserver.acquire(['dask.dataframe', 'pyarrow.parquet', 'pyarrow.dataset'],\n"
        "                      {'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1'})\n"
        "pid = vars(multiprocessing.forkserver)['_forkserver']._forkserver_pid\n"
        "done = multiprocessing.get_context('forkserver').Process(target=print)\n"
        "done.start(); done.join()\n"
        "print(len(os.listdir(f'/proc/{pid}/task')))\n"
        "forkserver.release()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.split() == ["1"]
    assert without_notices(done.stderr) == ""


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A temporary directory with a path that is too long for a socket."""
    folder = tmp_path / ("long" * 60)[: 150 - len(str(tmp_path)) - 1]
    folder.mkdir()
    assert len(str(folder)) == 150
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def held_open(folder: Path) -> list[str]:
    numbers = Path("/proc/self/fd").iterdir()
    paths = [str(number.readlink()) for number in numbers if number.is_symlink()]
    return [path for path in paths if path.startswith(str(folder))]


@pytest.mark.skipif(not FULL, reason="starts a cluster for a rare path: at full scale")
def test_a_temporary_directory_with_a_long_path(far: Path) -> None:
    assert forkserver.acquire(["json.tool"], {"MARK": "1"})
    try:
        pid, loaded, mark = ask()
        assert (loaded, mark) == (True, "1")
        (folder,) = records.private_folders()
        assert folder.is_relative_to(far)
        assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
        (listener,) = (folder / f"_p{os.getpid()}").iterdir()
        assert listener.is_socket()
        assert ask()[0] == pid
    finally:
        forkserver.release()
    assert list(far.iterdir()) == []
    assert held_open(far) == []


def test_a_killed_owner_with_a_long_path_leaves_nothing(far: Path) -> None:
    program = (
        "import os, signal\n"
        "from hyperplane.clusters.dask.local import forkserver\n"
        "assert forkserver.acquire([], {})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "TMPDIR": str(far)}
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=240, check=False)
    (folder,) = records.private_folders()
    (left,) = folder.iterdir()
    assert [each.is_socket() for each in left.iterdir()] == [True]
    assert records.read_all() == []
    assert list(far.iterdir()) == []


def test_a_folder_that_takes_no_socket_means_no_fork_and_leaves_nothing(
    far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver, "_short_path", str)
    assert not forkserver.acquire([], {})
    assert list(far.iterdir()) == []


@pytest.mark.slow
def test_a_killed_forkserver_is_replaced_and_nothing_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = {each.pid for each in psutil.Process().children()}
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
    with cluster, client:
        assert forkserver._started is not None
        killed, variables, modules = forkserver._started
        worker = psutil.Process(client.submit(os.getpid).result())
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: dead(worker), 120)
        assert client.submit(os.getpid, pure=False).result(timeout=120) != worker.pid
        assert (
            f"process {killed}, from which worker processes are forked, was killed" in caplog.text
        )
        assert forkserver._started[0] != killed
        assert forkserver._started[1:] == (variables, modules)
        prepared = "hyperplane.clusters.dask.local.forkserver_preload"
        assert client.submit(lambda: prepared in sys.modules).result(timeout=120)
        # One more cluster of the program is forked, too.
        second = hyperplane.start(hyperplane.plan_cluster(**ONE))
        with second.cluster, second.client:
            parent = second.client.submit(os.getppid).result()
            assert parent == forkserver._started[0]
    left = {each.pid for each in psutil.Process().children() if not is_tracker(each)}
    assert left <= before
    assert list(Path(tempfile.gettempdir()).rglob("*")) == []


def is_tracker(process: psutil.Process) -> bool:
    return "resource_tracker" in " ".join(process.cmdline())


@pytest.mark.skipif(not FULL, reason="stops a process that rarely stops: at full scale")
def test_a_cluster_closes_while_the_forkserver_is_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = GuardedNanny.close
    # A second instead of Dask's nine for a worker process.
    monkeypatch.setattr(
        GuardedNanny,
        "close",
        lambda nanny, timeout=5, reason="nanny-close": real(nanny, timeout=0.6, reason=reason),
    )
    client, cluster = hyperplane.initialize_cluster(**{**ONE, "nprocs": 2})
    workers = list(client.run(os.getpid).values())
    assert forkserver._started is not None
    pid = forkserver._started[0]
    client.close()
    os.kill(pid, signal.SIGSTOP)
    cluster.close()
    assert cluster.status.name == "closed"
    said = [each.getMessage() for each in caplog.records if "is stopped" in each.getMessage()]
    assert len(said) == 1
    assert f"kill -CONT {pid}" in said[0]
    assert records.read_all(starting=True) == []
    assert forkserver._started is None
    for each in (pid, *workers):
        with suppress(psutil.NoSuchProcess):  # a zombie until the init process reaps it
            assert psutil.Process(each).status() == "zombie"


@pytest.mark.slow
@pytest.mark.usefixtures("usual_preload")
def test_workers_of_one_machine_share_one_forkserver_and_it_ends_with_them() -> None:
    first = hyperplane.start(hyperplane.plan_cluster(**ONE))
    [pid] = first.client.run(lambda: os.getppid()).values()
    assert pid != os.getpid()
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1, "a fork of threads is not safe"
    second = hyperplane.start(hyperplane.plan_cluster(**ONE))
    assert set(second.client.run(os.getppid).values()) == {pid}
    # Each worker process imports what the forkserver has not: once 39 modules. Versions of Dask
    # differ by a few.
    [names] = second.client.run(lambda: list(sys.modules)).values()
    last = names.index("hyperplane.clusters.dask.local.forkserver_preload")
    assert "dask.dataframe" in names[:last]
    assert len(names[last + 1 :]) < 8, names[last + 1 :]
    first.client.close(), first.cluster.close()
    assert psutil.pid_exists(pid)
    second.client.close(), second.cluster.close()
    assert not psutil.pid_exists(pid)
    assert forkserver._users == 0


@pytest.mark.skipif(not FULL, reason="the contract of engines has a timeout: at full scale")
def test_start_timeout_closes_everything_and_says_why(tmp_path: Path) -> None:
    hangs = tmp_path / "hangs.py"
    hangs.write_text("import time\ndef dask_setup(worker):\n    time.sleep(600)\n")
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with dask.config.set({"distributed.worker.preload": [str(hangs)]}):
        plan = hyperplane.plan_cluster(**ONE, timeout=3)
        with pytest.raises(
            hyperplane.StartTimeout, match=r"connected within 3 s \(timeout\)"
        ) as caught:
            hyperplane.start(plan)
    assert caught.value.engine == "local"
    assert caught.value.log_tail
    assert isinstance(caught.value, TimeoutError)
    left = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            left += [process] * ("resource_tracker" not in " ".join(process.cmdline()))
    assert [process for process in left if process.pid not in before] == []
    assert records.read_all() == []


@pytest.mark.process
def test_the_modules_of_a_worker_process_load_no_pydantic() -> None:
    # The models of requests and plans took a tenth of a second in each new worker process.
    modules = ["hyperplane.clusters.dask.local.forkserver", *worker_preloads()]
    program = f"import sys, {', '.join(modules)}; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr
