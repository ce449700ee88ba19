"""Kernels of notebooks: private sockets that are always removed."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path

import nbformat
import pytest
from job_cases import is_alive, submit_job, wait_until
from scale import FULL, scaled

from hyperplane.errors import JobFailed
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.notebook_steps import kernel_folder
from hyperplane.jobs.notebook_steps.kernel_folder import (
    KernelFolder,
    _create_in,
    _remove_abandoned,
    create_folder,
)
from hyperplane.jobs.store.job_records import DONE

pytestmark = pytest.mark.process

PYTHON = {"name": "python3", "display_name": "3", "language": "python"}
#: A notebook takes two to four seconds of a core.
AT_ONCE = scaled(2, 16)


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A short temporary folder that the steps of a test share with nothing else."""
    folder = Path(subprocess.check_output(["mktemp", "-d", "-p", "/tmp"], text=True).strip())
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(kernel_folder.tempfile, "tempdir", str(folder))
    yield folder
    kernel_folder.shutil.rmtree(folder)


def step(name, *cells, **options):
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": PYTHON})
    notebook.cells += [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(notebook, f"{name}.ipynb")
    return Step(name=name, kind="notebook", path=f"{name}.ipynb", depends_on=(), **options)


@pytest.mark.skipif(not FULL, reason="starts many kernels: at full scale")
@pytest.mark.timeout(scaled(300, 1800))
def test_kernels_that_start_together_get_no_messages_of_each_other_and_leave_nothing(temporary):
    names = [f"n{number}" for number in range(AT_ONCE)]
    # Only some of the steps without stated resources run at once.
    small = Resources(cores=0.02)
    background = "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid)"
    steps = [
        step(
            name, f"token = '{name}'; print(token)", "1", "print(token)", background,
            resources=small,
        )
        for name in names
    ]  # fmt: skip
    before = sorted(path.name for path in Path().iterdir())
    # Two jobs in one folder, and in the first of them several kernels.
    jobs = [submit_job(*steps[number::2], max_retries=0) for number in range(2)]
    assert [job.wait(scaled(280, 800)) for job in jobs] == [DONE, DONE], [
        job.job.reason for job in jobs
    ]
    for number, name in enumerate(names):
        lines = jobs[number % 2].logs(name).split()
        # On a busy machine libzmq may complain when the kernel ends.
        assert lines[:2] == [name, name]
        wait_until(lambda pid=int(lines[2]): not is_alive(pid))
    assert sorted(path.name for path in Path().iterdir()) == before
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_step_that_is_killed_leaves_neither_kernel_nor_sockets(temporary, tmp_path):
    pid_file = str(tmp_path / "pids")
    cell = (
        f"import os; open('{pid_file}.draft', 'w').write(f'{{os.getpid()}} {{os.getppid()}}'); "
        f"os.rename('{pid_file}.draft', '{pid_file}')"
    )
    # A kernel that holds the interpreter does not see that its parent has ended.
    job = submit_job(step("busy", cell, "import ctypes; ctypes.PyDLL(None).sleep(300)"))
    wait_until(Path(pid_file).exists)
    (folder,) = temporary.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    sockets = {path.name for path in folder.iterdir() if path.is_socket()}
    assert sockets == {f"k-{number}" for number in range(1, 6)}
    kernel, executor = map(int, Path(pid_file).read_text().split())
    # The step and its wrapper, but not its kernel, which has a separate session.
    os.killpg(os.getpgid(executor), signal.SIGKILL)
    wait_until(lambda: not folder.exists())
    wait_until(lambda: not is_alive(kernel))
    job.cancel()
    assert job.wait(120) == "cancelled"
    wait_until(lambda: list(temporary.iterdir()) == [])


def test_a_folder_whose_processes_were_all_killed_is_removed_by_the_next_one(temporary):
    folder, lock = create_folder()
    other, gone = create_folder()
    os.close(gone)
    long_ago = time.time() - 100
    for each in (folder, other):
        os.utime(each, (long_ago, long_ago))
    _remove_abandoned(temporary)
    assert list(temporary.iterdir()) == [folder]
    os.close(lock)
    _remove_abandoned(temporary)
    assert list(temporary.iterdir()) == []


def test_sockets_have_a_short_path_in_a_folder_that_others_cannot_change(temporary, monkeypatch):
    long = temporary / ("x" * 90)
    long.mkdir()
    with pytest.raises(OSError, match="too long"):
        _create_in(long)
    assert list(long.iterdir()) == []
    monkeypatch.setattr(kernel_folder.tempfile, "tempdir", str(long))
    folder, lock = create_folder()
    assert folder.parent != long
    os.close(lock)
    kernel_folder.shutil.rmtree(folder)
    long.chmod(0o777)
    temporary.chmod(0o777)
    monkeypatch.setattr(kernel_folder.tempfile, "tempdir", str(temporary))
    folder, lock = create_folder()
    assert folder.parent != temporary
    os.close(lock)
    kernel_folder.shutil.rmtree(folder)


def test_a_missing_folder_for_sockets_is_an_error_with_advice(temporary, monkeypatch):
    def full(parent):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernel_folder, "_create_in", full)
    with pytest.raises(SystemExit, match=r"No space left on device.*Set TMPDIR to a folder"):
        create_folder()


def test_an_executed_notebook_is_complete_while_two_runs_write_it(tmp_path):
    output, ended, torn = tmp_path / "out.ipynb", threading.Event(), []
    output.write_text("[]")
    output.chmod(0o640)

    def write(number):
        place = KernelFolder(tmp_path / f"hyperplane-kernel-{number}", output, -1)
        for times in range(30):
            place.write_output(json.dumps([number] * (1000 + 300 * times)))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    reader = threading.Thread(target=lambda: _read_until(ended, output, torn))
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    ended.set()
    reader.join()
    assert torn == []
    assert stat.S_IMODE(output.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.ipynb"]


def _read_until(ended, output, torn):
    while not ended.is_set():
        try:
            content = json.loads(output.read_text())
        except ValueError as error:
            torn.append(error)
            return
        if len(set(content)) > 1:
            torn.append(content)
        time.sleep(0.001)  # lets the writers run


@pytest.mark.slow
def test_an_output_below_a_file_is_an_error_and_leaves_no_folder(temporary):
    # A file that was not there when the pipeline was checked.
    file = Step(name="file", kind="command", argv=("touch", "out"), depends_on=())
    values = dict(step("first", "1")) | {"output_path": "out/o.ipynb", "depends_on": ("file",)}
    notebook = Step(**values)
    with pytest.raises(JobFailed, match=r"is no folder\. Set notebook_output_path to a file in"):
        submit_job(file, notebook, max_retries=0).result(timeout=120)
    wait_until(lambda: not list(temporary.glob("hyperplane-kernel-*")))
