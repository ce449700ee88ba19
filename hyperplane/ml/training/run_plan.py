"""Processes of a run of a training program on this machine, and the checks of its request."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import os
import re
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from hyperplane.clusters.program_environment import RankAddresses, Role, make_rank_environment
from hyperplane.core.argument_checks import describe_value, find_count_faults, find_flag_faults
from hyperplane.core.errors import Fault, check

DEFAULT_WORKERS = 2
DEFAULT_PARAMETER_SERVERS = 2
DEFAULT_EVALUATORS = 0
DEFAULT_PORT = 27182
_MAX_PROCESSES = 1000
_MAX_PORT = 65535
_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "intel-tensorflow")


@dataclass(frozen=True)
class ProgramRequest:
    """Arguments of :func:`hyperplane.ml.train_program`; a count or port is None if not given."""

    module_name: Any
    arguments: Any
    package_path: Any
    job_dir: Any
    distributed: Any
    worker_count: Any
    parameter_server_count: Any
    evaluator_count: Any
    start_port: Any
    fail_fast: Any

    def ignored_options(self) -> list[str]:
        """Return the names of the given arguments that have no effect without ``distributed``."""
        names = ("worker_count", "parameter_server_count", "evaluator_count", "start_port")
        if self.distributed:
            return []
        return [name for name in names if getattr(self, name) is not None] + ["fail_fast"] * bool(
            self.fail_fast
        )


@dataclass(frozen=True)
class ProgramProcess:
    """One process of a run: its role and its number within the role, and its variables."""

    role: Role
    index: int
    variables: dict[str, str | None]

    @property
    def name(self) -> str:
        """Name in messages and before lines of output, such as ``worker-0``."""
        return f"{self.role}-{self.index}"


@dataclass(frozen=True)
class RunPlan:
    """A run that can start: the primary is the first of its processes."""

    command: tuple[str, ...]
    directory: str
    processes: tuple[ProgramProcess, ...]
    fail_fast: bool


def plan_run(request: ProgramRequest) -> RunPlan:
    """Return the plan of a run; raise a RequestError with all faults of its request."""
    faults, package_root = find_path_faults(request)
    faults += find_argument_faults(request)
    faults += find_flag_faults(distributed=request.distributed, fail_fast=request.fail_fast)
    counts, count_faults = read_counts(request)
    faults += count_faults
    start_port = DEFAULT_PORT if request.start_port is None else request.start_port
    needed = 1 + counts["worker_count"] + counts["parameter_server_count"]
    port_faults = find_count_faults("start_port", start_port, most=_MAX_PORT - needed + 1)
    if request.distributed is True and not port_faults:
        port_faults = _find_used_port_faults(int(start_port), needed)
    check(faults + port_faults)
    arguments = [str(argument) for argument in request.arguments]
    if request.job_dir is not None:
        arguments += ["--job-dir", os.fspath(request.job_dir)]
    roles: list[tuple[Role, int]] = [(find_primary_role(), 0)]
    addresses = RankAddresses(master=f"localhost:{_find_free_port()}")
    if request.distributed:
        roles += [("ps", index) for index in range(counts["parameter_server_count"])]
        roles += [("worker", index) for index in range(counts["worker_count"])]
        addresses = _assign_ports(roles, int(start_port))
        roles += [("evaluator", index) for index in range(counts["evaluator_count"])]
    return RunPlan(
        command=(sys.executable, "-m", request.module_name, *arguments),
        directory=str(package_root),
        processes=tuple(
            ProgramProcess(
                role,
                index,
                make_rank_environment(
                    role, index, addresses, job_name=request.module_name, arguments=arguments
                ),
            )
            for role, index in roles
        ),
        fail_fast=request.fail_fast,
    )


def read_counts(request: ProgramRequest) -> tuple[dict[str, int], list[Fault]]:
    """Return the numbers of workers, parameter servers and evaluators, and their faults."""
    counts = {
        "worker_count": DEFAULT_WORKERS,
        "parameter_server_count": DEFAULT_PARAMETER_SERVERS,
        "evaluator_count": DEFAULT_EVALUATORS,
    }
    faults: list[Fault] = []
    for name in counts:
        given = getattr(request, name)
        if given is None:
            continue
        found = find_count_faults(name, given, least=0, most=_MAX_PROCESSES)
        faults += found
        if not found:
            counts[name] = int(given)
    return counts, faults


def find_primary_role() -> Role:
    """Return ``master`` if TensorFlow 1 is installed, otherwise ``chief``."""
    for distribution in _TENSORFLOW:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(distribution)
            return "master" if version.startswith("1.") else "chief"
    return "chief"


def _assign_ports(roles: Sequence[tuple[Role, int]], start_port: int) -> RankAddresses:
    """Return the addresses of processes that use contiguous ports in the order of ``roles``."""
    by_role: dict[Role, list[str]] = {}
    for port, (role, _) in enumerate(roles, start_port):
        by_role.setdefault(role, []).append(f"localhost:{port}")
    return RankAddresses(by_role)


def find_path_faults(request: ProgramRequest) -> tuple[list[Fault], Path]:
    """Return the faults of the package path and the module, and the working directory."""
    package_path, module = request.package_path, request.module_name
    faults: list[Fault] = []
    root = Path.cwd().parent
    is_path = package_path is None or isinstance(package_path, (str, os.PathLike))
    if not is_path or package_path == "" or not Path(package_path or ".").is_dir():
        allowed = "the folder of the package, or None for the current directory"
        faults.append(Fault("package_path", describe_value(package_path), allowed))
    else:
        root = Path(os.path.abspath(package_path or ".")).parent  # noqa: PTH100 - keeps links
    allowed = "a module that python -m can run, such as 'trainer.task'"
    if not isinstance(module, str) or not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", module):
        faults.append(Fault("module_name", describe_value(module), allowed))
    elif not faults and not _is_runnable(module, root):
        advice = (
            f"there is no such module in {root}, the parent of the package path, and none is "
            "installed"
        )
        faults.append(Fault("module_name", repr(module), allowed, advice))
    return faults, root


def _is_runnable(module: str, root: Path) -> bool:
    """Return whether ``python -m`` finds a module in a folder; no part of it is imported."""
    path: list[str] = [str(root), *sys.path]
    spec: ModuleSpec | None = None
    package = ""
    for name in (*module.split("."), None):
        if name is None:  # a package is run by its module __main__
            if spec is None or spec.submodule_search_locations is None:
                return spec is not None
            name = "__main__"
        package = f"{package}.{name}".lstrip(".")
        spec = PathFinder.find_spec(package, path)
        if spec is None:
            return False
        path = list(spec.submodule_search_locations or ())
    return True


def find_argument_faults(request: ProgramRequest) -> list[Fault]:
    """Return the faults of the program's arguments and of ``job_dir``."""
    faults: list[Fault] = []
    arguments = request.arguments
    is_list = isinstance(arguments, (list, tuple))
    if not is_list or not all(_is_argument(each) for each in arguments):
        allowed = 'a list of texts, paths and numbers, such as ["--train-steps", 1000]'
        faults.append(Fault("arguments", describe_value(arguments), allowed))
    job_dir = request.job_dir
    if job_dir is not None and (
        not isinstance(job_dir, (str, os.PathLike)) or not str(job_dir) or "\0" in str(job_dir)
    ):
        faults.append(Fault("job_dir", describe_value(job_dir), "a folder or URL, or None"))
    return faults


def _is_argument(value: Any) -> bool:
    is_allowed = isinstance(value, (str, Path, int, float)) and not isinstance(value, bool)
    return is_allowed and "\0" not in str(value)


def _find_used_port_faults(start: int, count: int) -> list[Fault]:
    """Return a fault that names the ports that another process uses; none if all are unused."""
    used = [str(port) for port in range(start, start + count) if _is_used(port)]
    if not used:
        return []
    allowed = f"the first of {count} unused ports, to {start + count - 1}"
    verb = "is" if len(used) == 1 else "are"
    advice = f"{', '.join(used)} {verb} in use; choose another start_port"
    return [Fault("start_port", str(start), allowed, advice)]


def _is_used(port: int) -> bool:
    for family, host in ((socket.AF_INET, ""), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # As servers do: connections that have ended do not occupy their port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return True
    return False


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port
