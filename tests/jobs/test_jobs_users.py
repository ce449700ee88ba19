"""Jobs of several users on one machine, with one temporary and one working folder."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import dask
import pytest
from scale import FULL
from users import ONE_MORE, OTHER, as_other_user, program_of, shared_folder

from hyperplane.jobs.notebook_steps.kernel_folder import KernelFolder
from hyperplane.jobs.store.jobs_home import jobs_folder, this_machine

pytestmark = pytest.mark.process

#: Each step waits until the other one is running.
STEP = "echo $(id -u); touch here-$(id -u); until [ -e here-$OF ]; do sleep 0.05; done"
RUN = "import sys; sys.argv[1:] = ['job', 'run', 'step.sh', '-p', 'of={}']\n" + (
    "from hyperplane.cli import main; main()"
)


@pytest.mark.skipif(not FULL, reason="takes five seconds: at full scale")
def test_two_users_run_jobs_at_once_in_one_folder():
    with shared_folder() as place:
        work = place / "work"
        work.mkdir()
        work.chmod(0o777)
        (work / "step.sh").write_text(STEP)
        running = []
        for user, other in ((OTHER, ONE_MORE), (ONE_MORE, OTHER)):
            own = place / f"home-{user}"
            own.mkdir(0o700)
            os.chown(own, user, user)
            settings = {
                "HOME": str(own),
                # As with sudo -E.
                "USER": "other",
                "TMPDIR": str(place),
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            program = RUN.format(other)
            running.append(program_of(user, "-c", program, cwd=work, env=settings))
        outputs = [process.communicate(timeout=150)[0] for process in running]
        assert [process.returncode for process in running] == [0, 0], outputs
        for user in (OTHER, ONE_MORE):
            assert (work / f"here-{user}").stat().st_uid == user
            (log,) = (place / f"home-{user}").rglob("attempt-1.log")
            assert log.read_text() == f"{user}\n"
        left = {path.name for path in place.iterdir()}
        assert left == {"work", f"home-{OTHER}", f"home-{ONE_MORE}"}


def test_the_folder_of_another_user_is_an_error_with_advice():
    with shared_folder() as place:
        (place / "jobs").mkdir(0o700)
        with dask.config.set({"hyperplane.jobs.home": str(place / "jobs")}):
            error = as_other_user(jobs_folder)
    assert "cannot use this folder (it belongs to another user); set hyperplane.jobs.home" in error


def test_a_user_has_the_name_of_the_system_and_else_a_number(monkeypatch):
    monkeypatch.setenv("USER", "other")
    monkeypatch.setenv("LOGNAME", "other")
    assert this_machine().startswith(f"{pwd.getpwuid(os.getuid()).pw_name}@")

    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert this_machine().startswith(f"{os.getuid()}@")


def test_an_executed_notebook_of_another_user_is_not_replaced():
    with shared_folder() as place:
        (place / "out").mkdir(0o755)
        output = place / "out" / "done.ipynb"
        output.touch(0o644)
        error = as_other_user(lambda: KernelFolder(Path("/x"), output, -1).write_output("[]"))
    assert error.splitlines()[-1] == (
        f"PermissionError: cannot write the executed notebook {output}: Permission denied. "
        "Set notebook_output_path to a writable file"
    )
