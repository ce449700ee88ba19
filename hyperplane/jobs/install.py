"""``python -m hyperplane.jobs.install``: a virtual environment on top of this one."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path


def install(requirements: Path, place: Path) -> int:
    """Make an environment that has these packages and all of ours; whoever comes second waits.

    Parameters
    ----------
    requirements : Path
        A file for pip.
    place : Path
        Folder of the environment.

    Returns
    -------
    int
        The exit code of pip.
    """
    place.mkdir(parents=True, exist_ok=True)
    complete = place / "complete"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete.exists():
            return 0
        venv.create(place, with_pip=False, symlinks=True)
        python = place / "bin" / "python"
        # What is installed here is found, too, after what is asked for.
        (_site_packages(place) / "hyperplane-parent.pth").write_text(
            f"{sysconfig.get_path('purelib')}\n"
        )
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
        asked = ["--disable-pip-version-check", "-r", str(requirements)]
        code = subprocess.run([*pip, *asked], check=False).returncode  # noqa: S603 - pip, a list
        if code == 0:
            complete.touch()
        return code


def _site_packages(place: Path) -> Path:
    variables = {"base": str(place), "platbase": str(place)}
    return Path(sysconfig.get_path("purelib", "venv", variables))


if __name__ == "__main__":
    sys.exit(install(*map(Path, sys.argv[1:])))
