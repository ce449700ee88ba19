"""Files that a step needs in its container: its script, the pipeline's folder, the package."""

from __future__ import annotations

import fnmatch
import io
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from hyperplane.core import config_defaults
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.notebook_program import PROGRAM_FILES

#: Folder for files of hyperplane, below the working folder of a task.
PROGRAM_FOLDER = ".hyperplane"
#: Maximum bytes of the folder of a pipeline.
MAX_FOLDER_BYTES = 200_000_000
#: Names that are not sent.
_SKIPPED = {".git", ".hg", ".svn", ".venv", "__pycache__", ".ipynb_checkpoints", "node_modules"}
#: Folders and files with keys and passwords, which are not sent either; in lower case.
_SECRET_FOLDERS = {".aws", ".azure", ".docker", ".gnupg", ".kube", ".ssh"}
_SECRET_FILES = (
    ".env", ".env.*", ".git-credentials", ".htpasswd", ".netrc", ".pgpass", ".pypirc",
    "id_dsa*", "id_ecdsa*", "id_ed25519*", "id_rsa*", "*.key", "*.p12", "*.pem", "*.pfx",
)  # fmt: skip
#: The earliest time that an archive can have: equal contents have equal archives.
_TIME = (1980, 1, 1, 0, 0, 0)


class StagedCodeSettings(Protocol):
    """Settings of a runner that decide which files containers get."""

    @property
    def root(self) -> str | None:
        """Folder of the image that has the files of the pipeline."""
        ...

    @property
    def stage(self) -> str:
        """``"file"`` for the script of each step, ``"folder"`` for that of the pipeline."""
        ...

    @property
    def send_package(self) -> bool:
        """Whether the package hyperplane is sent."""
        ...


class TaskFile(NamedTuple):
    """A file or archive for a container.

    Parameters
    ----------
    path : str
        Path below the working folder of the task; of an archive, the folder of its content.
    content : bytes
        Its content.
    archive : bool
        Whether it is an archive to unpack.
    importable : bool
        Whether Python finds modules in the folder.
    """

    path: str
    content: bytes
    archive: bool = False
    importable: bool = False

    @property
    def suffix(self) -> str:
        """Suffix of the name of the object in the staging folder."""
        return ".zip" if self.archive else Path(self.path).suffix


def collect_files(
    command: AttemptCommand, step: Step, root: str, settings: StagedCodeSettings
) -> list[TaskFile]:
    """Return the files that an attempt needs.

    Parameters
    ----------
    command : AttemptCommand
        The attempt.
    step : Step
        Its step.
    root : str
        Folder of the pipeline on this machine.
    settings : AwsBatchSettings
        Settings of the runner.

    Raises
    ------
    OSError
        If a file cannot be read.
    """
    files = []
    if settings.root is None and settings.stage == "folder":
        files.append(TaskFile(".", build_archive(list_folder(Path(root))), archive=True))
    elif settings.root is None and command.script is not None:
        files.append(TaskFile(command.script.name, command.script.read_bytes()))
    elif settings.root is None and step.package_path is not None:
        package = Path(root, step.package_path)
        files.append(TaskFile(package.name, build_archive(list_folder(package)), archive=True))
    if step.kind == "notebook":
        files += [
            TaskFile(f"{PROGRAM_FOLDER}/{file.name}", file.read_bytes()) for file in PROGRAM_FILES
        ]
    if settings.send_package:
        archive = build_archive(list_package())
        files.append(TaskFile(f"{PROGRAM_FOLDER}/packages", archive, archive=True, importable=True))
    return files


def build_archive(files: Iterable[tuple[str, Path]]) -> bytes:
    """Return an archive that depends only on the names, contents and permissions of files."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, file in sorted(files):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            executable = os.access(file, os.X_OK)
            entry.external_attr = (0o755 if executable else 0o644) << 16
            archive.writestr(entry, file.read_bytes())
    return target.getvalue()


def list_folder(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names and paths of the files below a folder.

    Caches, repositories, and files that usually contain keys or passwords are left out.
    """
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in set(folders) - _SKIPPED if name.lower() not in _SECRET_FOLDERS
        )
        for name in names:
            file = Path(parent, name)
            if file.is_file() and not name.endswith((".pyc", ".pyo")) and not _is_secret(name):
                yield str(file.relative_to(folder)), file


def _is_secret(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in _SECRET_FILES)


def list_package() -> Iterator[tuple[str, Path]]:
    """Yield the files of the package hyperplane, as its wheel has them."""
    package = Path(config_defaults.__file__).parents[1]
    for name, file in list_folder(package):
        yield f"{package.name}/{name}", file
    if not (package / "config_data").is_dir():  # a checkout
        for name in config_defaults.FILES:
            yield f"{package.name}/config_data/{name}", config_defaults.folder() / name
