"""``python -m hyperplane.jobs.install REQUIREMENTS FOLDER``: make a virtual environment."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from hyperplane.platforms.local.file_locks import exclusive_lock


def install(requirements: Path, folder: Path) -> int:
    """Install packages into an environment that also has all packages of this one.

    Concurrent calls wait for each other. Returns the exit code of pip.
    """
    folder.mkdir(parents=True, exist_ok=True)
    complete = folder / "complete"
    with exclusive_lock(folder / "lock"):
        if complete.exists():
            return 0
        venv.create(folder, with_pip=False, symlinks=True)
        python = folder / "bin" / "python"
        # This environment's packages come after those of the requirements.
        (_site_packages(folder) / "hyperplane-parent.pth").write_text(
            f"{sysconfig.get_path('purelib')}\n"
        )
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
        options = ["--disable-pip-version-check", "-r", str(requirements)]
        code = subprocess.run([*pip, *options], check=False).returncode  # noqa: S603 - pip, a list
        if code == 0:
            complete.touch()
        return code


def _site_packages(folder: Path) -> Path:
    variables = {"base": str(folder), "platbase": str(folder)}
    return Path(sysconfig.get_path("purelib", "venv", variables))


if __name__ == "__main__":
    sys.exit(install(*map(Path, sys.argv[1:])))
