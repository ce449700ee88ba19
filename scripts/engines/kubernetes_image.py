"""Write the images of the test cluster from this machine's files, without Docker.

``kubernetes_image.py FOLDER`` writes ``FOLDER/pause.tar`` and ``FOLDER/dask.tar``. The second has
only the Python that runs this script, the packages of :data:`WANTED` and their dependencies in the
versions installed here, bash and sleep, and the shared libraries that they load.
``kubernetes_image.py FOLDER ray``, with a Python that has Ray, writes only ``FOLDER/ray.tar``,
which has the packages of :data:`WANTED_FOR_RAY` in place of those, without hyperplane.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PREFIX = "test.invalid/hyperplane"
WANTED = (
    *("hyperplane", "pandas", "pyarrow", "bokeh", "cryptography", "dask-kubernetes"),
    *("papermill", "ipykernel"),  # for jobs with notebooks
)
WANTED_FOR_RAY = ("ray[default]", "cryptography", "pandas", "pyarrow")
#: Dependencies of kopf and kr8s that they do not use here.
NOT_NEEDED = {"kubernetes", "kubernetes-asyncio"}
NOT_COPIED = re.compile(r"(^|/)(test|tests|idlelib|tkinter|ensurepip|site-packages|config-[^/]+)/")
USER = 1000
VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
#: Imported from the repository, because an editable installation has no files.
ROOT = Path(__file__).resolve().parents[2]
SHIM = Path(__file__).with_name("kubernetes_shim.py")
PROGRAM = Path(__file__).with_name("kubernetes_program.py")
#: Has a main guard, because a process that Dask spawns from it imports it again.
SCRIPT = """#!/opt/python/bin/python3
import sys
from {module} import {name}
if __name__ == "__main__":
    sys.exit({name}())
"""


def say(text: str) -> None:
    """Print a line about progress."""
    sys.stdout.write(f"kubernetes_image: {text}\n")
    sys.stdout.flush()


def with_dependencies(names: tuple[str, ...]) -> dict[str, Distribution]:
    """Return installed packages and their dependencies."""
    distributions: dict[str, Distribution] = {}
    todo = list(names)
    while todo:
        name, _, extra = todo.pop().partition("[")
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in distributions or key in NOT_NEEDED:
            continue
        try:
            distributions[key] = distribution(key)
        except PackageNotFoundError:
            if key in names:
                raise
            continue
        for requirement in map(Requirement, distributions[key].requires or ()):
            chosen = {"extra": extra.rstrip("]")}
            if not requirement.marker or requirement.marker.evaluate(chosen):
                todo.append(requirement.name)
    return distributions


def libraries(files: list[Path]) -> set[Path]:
    """Return the shared libraries that programs and modules load."""
    paths: set[Path] = set()
    for start in range(0, len(files), 200):
        batch = list(map(str, files[start : start + 200]))
        printed = subprocess.run(  # noqa: S603 - files of this installation
            ["/usr/bin/ldd", *batch], capture_output=True, text=True, check=False
        ).stdout
        for path in re.findall(r"(?:=> |\t)(/\S+) \(0x", printed):
            paths.add(Path(path))
    prefixes = (sys.prefix, sys.base_prefix)  # copied as files of packages
    return {path for path in paths if not str(path).startswith(prefixes)}


class Image:
    """A docker-archive with one layer that is being written."""

    def __init__(self, scratch: Path) -> None:
        self.layer = scratch / "layer.tar"
        self.tar = tarfile.open(self.layer, "w", dereference=True)  # noqa: SIM115 - see write()
        self.seen: set[str] = set()

    def add(self, source: Path, target: str) -> None:
        """Add a file at a path of the image."""
        target = target.lstrip("/")
        if target not in self.seen:
            self.seen.add(target)
            self.tar.add(source, arcname=target, recursive=False)

    def text(self, target: str, text: str, mode: int = 0o644) -> None:
        """Add a small text file."""
        entry = tarfile.TarInfo(target.lstrip("/"))
        entry.size, entry.mode, entry.mtime = len(text.encode()), mode, int(time.time())
        self.tar.addfile(entry, io.BytesIO(text.encode()))

    def folder(self, target: str, mode: int = 0o755) -> None:
        """Add an empty folder."""
        entry = tarfile.TarInfo(target.lstrip("/"))
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self.tar.addfile(entry)

    def with_libraries(self, files: list[Path]) -> None:
        """Add programs and modules, the libraries that they load, and the loader."""
        for path in sorted(libraries(files)):
            self.add(path, str(path))

    def write(self, name: str, out: Path, config: dict[str, object]) -> None:
        """Finish the image: its layer, the checksum and the command."""
        self.tar.close()
        checksum = hashlib.sha256()
        with self.layer.open("rb") as file:
            while block := file.read(2**20):
                checksum.update(block)
        about = {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{checksum.hexdigest()}"]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        draft = out.with_suffix(".new")
        with tarfile.open(draft, "w") as archive:
            for part, content in (("config.json", about), ("manifest.json", manifest)):
                entry = tarfile.TarInfo(part)
                data = json.dumps(content).encode()
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
            archive.add(self.layer, "layer.tar")
        draft.replace(out)
        say(f"{name}: {out.stat().st_size >> 20} MiB in {out}")


def pause(out: Path, scratch: Path) -> None:
    """Write the image of the pause container, which holds the network of each pod."""
    image = Image(scratch)
    image.add(Path("/bin/sleep").resolve(), "/sleep")
    image.with_libraries([Path("/bin/sleep")])
    image.write(f"{PREFIX}/pause:1", out, {"Entrypoint": ["/sleep", "infinity"]})


def dask(out: Path, scratch: Path) -> None:
    """Write the image with Python, Dask and the operator."""
    image = Image(scratch)
    _add_python(image, WANTED)
    for file in sorted((ROOT / "hyperplane").rglob("*.py*")):
        if file.suffix == ".pyc":
            continue
        image.add(file, f"/opt/site/{file.relative_to(ROOT).as_posix()}")
    for file in sorted((ROOT / "config").glob("*.yaml")):
        image.add(file, f"/opt/site/hyperplane/config_data/{file.name}")
    image.add(SHIM, f"/opt/site/{SHIM.name}")
    image.add(PROGRAM, "/srv/training/trainer/task.py")
    for name, module, function in (("dask", "dask.__main__", "main"), ("kopf", "kopf.cli", "main")):
        image.text(f"/opt/bin/{name}", SCRIPT.format(module=module, name=function), 0o755)
    _write(image, "dask", out)


def ray(out: Path, scratch: Path) -> None:
    """Write the image with Python and Ray."""
    image = Image(scratch)
    _add_python(image, WANTED_FOR_RAY)
    image.add(Path("/bin/bash").resolve(), "/bin/bash")  # KubeRay's commands name it so
    image.text("/opt/bin/ray", SCRIPT.format(module="ray.scripts.scripts", name="main"), 0o755)
    _write(image, "ray", out)


def _add_python(image: Image, wanted: tuple[str, ...]) -> None:
    """Add Python, packages and their dependencies, bash and sleep, and their libraries."""
    native = [Path(sys.executable).resolve()]
    for name in ("python3", "python"):
        image.add(native[0], f"/opt/python/bin/{name}")
    for name in ("bash", "sleep"):  # for steps of jobs
        native.append(Path("/bin", name).resolve())
        image.add(native[-1], f"/opt/bin/{name}")
    shared = Path(sysconfig.get_config_var("LIBDIR")) / str(sysconfig.get_config_var("LDLIBRARY"))
    if shared.suffix == ".so" and shared.exists():
        image.add(shared, f"/opt/python/lib/{shared.resolve().name}")
    for file, target in _stdlib():
        image.add(file, target)
        native += [file] if file.suffix == ".so" else []
    for package in with_dependencies(wanted).values():
        for part in package.files or ():
            file = Path(str(package.locate_file(part)))
            if ".." not in part.parts and file.is_file():
                image.add(file, f"/opt/site/{part.as_posix()}")
                native += [file] if ".so" in file.suffixes else []
    image.with_libraries(native)


def _write(image: Image, name: str, out: Path) -> None:
    """Finish an image with Python, whose programs run as a user without privileges."""
    image.text("/etc/passwd", f"root:x:0:0::/:/\ndask:x:{USER}:{USER}::/tmp:/\n")
    image.text("/etc/nsswitch.conf", "hosts: files dns\n")
    image.folder("/tmp", 0o1777)  # noqa: S108 - a folder of the image
    variables = {
        "PATH": "/opt/bin:/opt/python/bin",
        "PYTHONHOME": "/opt/python",
        "PYTHONPATH": "/opt/site",
        "LD_LIBRARY_PATH": "/opt/python/lib",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/tmp",  # noqa: S108
    }
    environment = [f"{variable}={value}" for variable, value in variables.items()]
    config = {"Env": environment, "User": str(USER), "WorkingDir": "/tmp"}  # noqa: S108
    image.write(f"{PREFIX}/{name}:1", out, config)


def _stdlib() -> Iterator[tuple[Path, str]]:
    """Yield the files of the standard library and their paths in the image."""
    for key in ("stdlib", "platstdlib"):
        folder = Path(sysconfig.get_path(key, vars={"base": sys.base_prefix}))
        for file in sorted(folder.rglob("*")):
            inside = file.relative_to(folder).as_posix()
            if file.is_file() and not NOT_COPIED.search(inside):
                yield file, f"/opt/python/lib/{VERSION}/{inside}"


def main() -> None:
    """Write the images pause and dask, or only that of Ray."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for write in (ray,) if sys.argv[2:] == ["ray"] else (pause, dask):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            write(folder / f"{write.__name__}.tar", Path(scratch))
        say(f"{write.__name__} took {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
