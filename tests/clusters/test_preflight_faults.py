"""Planted faults that ``preflight`` finds before a worker starts, and no false alarms."""

from __future__ import annotations

import importlib
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
from kubernetes_server import NAMESPACE, ApiServer, running_api_server
from ssh_server import SshServer, running_ssh_server

import hyperplane
from hyperplane import start_checks
from hyperplane.clusters.dask.ssh.engine import SshEngine
from hyperplane.guard.preflight.report import PreflightReport
from hyperplane.guard.preflight.run_checks import run_checks

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("patient_checks")]

SMALL: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 1,
    "cores_per_worker": 1,
    "ram_gb_per_proc": 0.5,
}


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A host whose programs have the import path of this process."""
    with running_ssh_server(tmp_path_factory.mktemp("ssh")) as server:
        server.variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        yield server


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with commands of Slurm that accept everything."""
    folder = tmp_path / "slurm-programs"
    folder.mkdir()
    for name in ("sbatch", "squeue", "scancel"):
        (folder / name).write_text("#!/bin/sh\ncat > /dev/null\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with running_api_server(tmp_path, monkeypatch) as server:
        yield server


class Scene:
    """The services of a test, and the plan with a fault."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request, self.folder = request, folder

    def __getattr__(self, name: str) -> Any:
        return self._request.getfixturevalue(name)

    def local(self, **arguments: Any) -> hyperplane.ClusterPlan:
        return hyperplane.plan_cluster(
            **{"engine": "local", "local_fit": "exact", **SMALL, **arguments}
        )

    def ssh(self, settings: dict[str, Any] | None = None, **arguments: Any) -> Any:
        options = {**self.host.settings(), **(settings or {})}
        return hyperplane.plan_cluster(
            engine="ssh", engine_options=options, **{**SMALL, **arguments}
        )

    def on_slurm(self, settings: dict[str, Any] | None = None, **arguments: Any) -> Any:
        self.slurm  # noqa: B018 - starts the fixture
        options = {"shared_folder": str(self.folder / "shared"), **(settings or {})}
        return hyperplane.plan_cluster(
            engine="slurm", engine_options=options, **{**SMALL, **arguments}
        )

    def in_pods(self, settings: dict[str, Any] | None = None, **arguments: Any) -> Any:
        options = {"image": "registry.example/a:1", "namespace": NAMESPACE, **(settings or {})}
        return hyperplane.plan_cluster(
            engine="kubernetes", engine_options=options, **{**SMALL, **arguments}
        )

    def change_host(self, name: str, text: str) -> None:
        """Put a file at the beginning of the import path of the host."""
        place = self.folder / "host"
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        path = self.host.variables["PYTHONPATH"]
        if not path.startswith(str(place)):
            self.host.variables["PYTHONPATH"] = f"{place}{os.pathsep}{path}"

    def install_other(self, package: str, version: str) -> None:
        """Let the host have another version of a package."""
        text = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        self.change_host(f"{package}-{version}.dist-info/METADATA", text)

    def local_module(self, name: str, file: str) -> Any:
        """Import a module of a folder that only this machine has."""
        place = self.folder / "mine" / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("def double(x):\n    return 2 * x\n")
        self.monkeypatch.syspath_prepend(str(self.folder / "mine"))
        self.monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)


Planted = Callable[[Scene], PreflightReport]


def _output_in_a_folder_without_access(scene: Scene) -> PreflightReport:
    return hyperplane.preflight(scene.local(), output="/proc/no/out.parquet")


def _output_below_a_file(scene: Scene) -> PreflightReport:
    (scene.folder / "file").touch()
    return hyperplane.preflight(scene.local(), output=scene.folder / "file" / "out.parquet")


def _output_with_a_glob(scene: Scene) -> PreflightReport:
    return hyperplane.preflight(scene.local(), output=str(scene.folder / "out-*.parquet"))


def _no_data(scene: Scene) -> PreflightReport:
    return hyperplane.preflight(scene.local(), data=str(scene.folder / "none-*.parquet"))


def _chunk_larger_than_a_worker(scene: Scene) -> PreflightReport:
    return hyperplane.preflight(scene.local(), data=da.ones((20_000, 10_000), chunks=-1))


def _data_set_chunk_larger_than_a_worker(scene: Scene) -> PreflightReport:
    values = da.ones((20_000, 10_000), chunks=-1)
    return hyperplane.preflight(scene.local(), data=xr.Dataset({"v": (("x", "y"), values)}))


def _damaged_parquet(size: int, scene: Scene) -> PreflightReport:
    file = scene.folder / "damaged.parquet"
    pq.write_table(pa.table({"a": np.arange(1000)}), file)
    file.write_bytes(file.read_bytes()[:size])
    return hyperplane.preflight(scene.local(), data=file)


def _row_group_larger_than_a_worker(scene: Scene) -> PreflightReport:
    file = scene.folder / "one.parquet"
    pq.write_table(pa.table({"a": np.arange(4_000_000)}), file, row_group_size=4_000_000)
    plan = scene.local()
    small = replace(plan, worker=replace(plan.worker, ram_per_proc=30_000_000))
    return hyperplane.preflight(small, data=file)


def _chunk_without_space_for_copies(scene: Scene) -> PreflightReport:
    return hyperplane.preflight(scene.local(), data=da.ones((5000, 10_000), chunks=-1))


def _port_in_use(engine: str, scene: Scene) -> PreflightReport:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if engine == "local":
            return hyperplane.preflight(scene.local(dashboard_port=port))
        scene.kubernetes  # noqa: B018 - starts the fixture
        return hyperplane.preflight(scene.in_pods({"port_forward": "always"}, dashboard_port=port))


def _full_spill_disk(scene: Scene) -> PreflightReport:
    options = {"reserve_disk_gb": 10**6}
    return hyperplane.preflight(scene.local(engine_options=options))


class _Forbidden(BaseHTTPRequestHandler):
    """A store that refuses every request."""

    def _refuse(self) -> None:
        body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _refuse  # noqa: N815 - names of http.server

    def log_message(self, *arguments: Any) -> None:
        pass


def _s3(port: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}"
    return {"key": "k", "secret": "sesame", "endpoint_url": url}


def _refused_credentials(scene: Scene, **urls: Any) -> PreflightReport:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Forbidden) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            options = _s3(http.server_address[1])
            return hyperplane.preflight(scene.local(), storage_options=options, **urls)
        finally:
            http.shutdown()
            thread.join()


def _store_that_does_not_run(scene: Scene) -> PreflightReport:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    url = "s3://bucket/out.parquet"
    return hyperplane.preflight(scene.local(), output=url, storage_options=_s3(port))


def _other_python(scene: Scene) -> PreflightReport:
    scene.change_host("platform.py", "def python_version():\n    return '3.9.1'\n")
    return hyperplane.preflight(scene.ssh())


def _other_version(package: str, version: str, scene: Scene) -> PreflightReport:
    scene.install_other(package, version)
    return hyperplane.preflight(scene.ssh())


def _missing_package(scene: Scene) -> PreflightReport:
    scene.change_host("sitecustomize.py", "import sys\nsys.modules['numpy'] = None\n")
    return hyperplane.preflight(scene.ssh(), data=da.ones(10).map_blocks(np.sqrt))


def _missing_module(name: str, file: str, scene: Scene) -> PreflightReport:
    module = scene.local_module(name, file)
    scene.host.variables["PYTHONPATH"] = str(Path(hyperplane.__file__).parents[1])

    def work(x: int) -> Any:
        return module.double(x)

    return hyperplane.preflight(scene.ssh(), data=work)


def _changed_module(scene: Scene) -> PreflightReport:
    scene.local_module("of_the_project", "of_the_project.py")
    scene.change_host("of_the_project.py", "# an older one\n")
    globals()["of_the_project"] = sys.modules["of_the_project"]
    try:
        return hyperplane.preflight(scene.ssh())
    finally:
        del globals()["of_the_project"]


def _closed_port(scene: Scene) -> PreflightReport:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    return hyperplane.preflight(scene.ssh({"port": port}))


def _unknown_host_key(scene: Scene) -> PreflightReport:
    (scene.folder / "empty").touch()
    return hyperplane.preflight(scene.ssh({"known_hosts": str(scene.folder / "empty")}))


def _missing_python(scene: Scene) -> PreflightReport:
    return hyperplane.preflight(scene.ssh({"python": "/no/such/python"}))


def _missing_hyperplane(scene: Scene) -> PreflightReport:
    scene.change_host("sitecustomize.py", "import sys\nsys.modules['hyperplane'] = None\n")
    return hyperplane.preflight(scene.ssh())


def _junk_key(scene: Scene) -> PreflightReport:
    (scene.folder / "junk").write_text("junk")
    return hyperplane.preflight(scene.ssh({"client_keys": [str(scene.folder / "junk")]}))


def _missing_interface(scene: Scene) -> PreflightReport:
    return hyperplane.preflight(scene.ssh({"interface": "ib9"}))


def _small_host(scene: Scene) -> PreflightReport:
    return hyperplane.preflight(scene.ssh(ram_gb_per_proc=20_000))


def _spill_folder_without_access(scene: Scene) -> PreflightReport:
    return hyperplane.preflight(scene.ssh({"local_directory": "/proc/spill"}))


def _data_on_this_machine_only(scene: Scene) -> PreflightReport:
    (scene.folder / "day.csv").write_text("a\n1\n")
    hide = "import pathlib\npathlib.Path.exists = lambda self: False\n"
    scene.change_host("sitecustomize.py", hide)
    return hyperplane.preflight(scene.ssh(), data=scene.folder / "day.csv")


def _output_on_this_machine_only(scene: Scene) -> PreflightReport:
    hide = "import pathlib\npathlib.Path.exists = lambda self: False\n"
    scene.change_host("sitecustomize.py", hide)
    return hyperplane.preflight(scene.ssh(), output=scene.folder / "out.parquet")


def _unknown_partition(scene: Scene) -> PreflightReport:
    plan = scene.on_slurm({"partition": "lnog"})
    message = "sbatch: error: invalid partition specified: lnog"
    program = f"#!/bin/sh\ncat > /dev/null\necho {shlex.quote(message)} >&2\nexit 1\n"
    (scene.slurm / "sbatch").write_text(program)
    return hyperplane.preflight(plan)


def _shared_folder_without_access(scene: Scene) -> PreflightReport:
    return hyperplane.preflight(scene.on_slurm({"shared_folder": "/proc/shared"}))


def _other_python_of_the_nodes(scene: Scene) -> PreflightReport:
    place = scene.folder / "node"
    place.mkdir()
    (place / "platform.py").write_text("def python_version():\n    return '3.9.1'\n")
    python = scene.folder / "python"
    path = os.pathsep.join([str(place), *filter(None, sys.path)])
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(path)} exec {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    return hyperplane.preflight(scene.on_slurm({"python": str(python)}))


def _image_without_a_tag(scene: Scene) -> PreflightReport:
    scene.kubernetes  # noqa: B018 - starts the fixture
    return hyperplane.preflight(scene.in_pods({"image": "registry.example/a"}))


def _image_of_another_python(scene: Scene) -> PreflightReport:
    scene.kubernetes  # noqa: B018
    return hyperplane.preflight(scene.in_pods({"image": "registry.example/a:2026.8-py3.9"}))


def _quota(hard: str, used: str) -> dict[str, Any]:
    status = {"hard": {"requests.memory": hard}, "used": {"requests.memory": used}}
    return {"metadata": {"name": "small"}, "status": status}


def _small_quota(hard: str, used: str, scene: Scene) -> PreflightReport:
    scene.kubernetes.objects["resourcequotas", "small"] = _quota(hard, used)
    return hyperplane.preflight(scene.in_pods())


def _no_operator(scene: Scene) -> PreflightReport:
    scene.kubernetes.refusals["GET", "daskclusters"] = [404]
    return hyperplane.preflight(scene.in_pods())


def _gateway_without_a_password(scene: Scene) -> PreflightReport:
    scene.monkeypatch.delenv("NO_SUCH_PASSWORD", raising=False)
    options = {
        **{"address": "http://127.0.0.1:1", "auth": "basic"},
        "password_variable": "NO_SUCH_PASSWORD",
    }
    return hyperplane.preflight(
        hyperplane.plan_cluster(engine="gateway", engine_options=options, **SMALL)
    )


def _gateway_that_does_not_run(scene: Scene) -> PreflightReport:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    options = {"address": f"http://127.0.0.1:{port}"}
    return hyperplane.preflight(
        hyperplane.plan_cluster(engine="gateway", engine_options=options, **SMALL)
    )


#: Name -> what plants the fault; state, subject and a part of the text of the finding.
PLANTED: dict[str, tuple[Planted, str, str, str]] = {
    "output: no access": (_output_in_a_folder_without_access, "fault", "output", "cannot be wr"),
    "output: below a file": (_output_below_a_file, "fault", "output", "Not a directory"),
    "output: a glob": (_output_with_a_glob, "fault", "output", "without *"),
    "output: refused credentials": (
        partial(_refused_credentials, output="s3://bucket/out.parquet"),
        *("fault", "output", "permission denied"),
    ),
    "output: no server": (_store_that_does_not_run, "fault", "output", "no connection; check"),
    "data: refused credentials": (
        partial(_refused_credentials, data="s3://bucket/in.parquet"),
        *("fault", "data", "in.parquet"),
    ),
    "data: none": (_no_data, "fault", "data", "none were found"),
    "data: not on the host": (_data_on_this_machine_only, "fault", "data", "where tasks read"),
    "output: not on the host": (_output_on_this_machine_only, "fault", "output", "is not shared"),
    "partition: a chunk": (_chunk_larger_than_a_worker, "fault", "partitions", "1.6 GB"),
    "partition: a row group": (_row_group_larger_than_a_worker, "fault", "partitions", "32 MB"),
    "partition: a data set": (
        _data_set_chunk_larger_than_a_worker,
        *("fault", "partitions", "1.6 GB"),
    ),
    "data: truncated": (partial(_damaged_parquet, -20), "fault", "data", "damaged.parquet: "),
    "data: empty": (partial(_damaged_parquet, 0), "fault", "data", "file size is 0 bytes"),
    "partition: copies": (_chunk_without_space_for_copies, "warning", "partitions", "3 copies"),
    "port in use: local": (
        partial(_port_in_use, "local"),
        *("warning", "dashboard port", "takes another port"),
    ),
    "port in use: forwarded": (
        partial(_port_in_use, "kubernetes"),
        *("fault", "dashboard port", "cannot be opened"),
    ),
    "spill disk: full": (_full_spill_disk, "warning", "spill folder", "cannot spill"),
    "spill disk: no access": (_spill_folder_without_access, "fault", "spill folder", "cannot be"),
    "versions: python": (_other_python, "fault", "versions", "3.9 on 127.0.0.1"),
    "versions: pandas": (
        partial(_other_version, "pandas", "2.0.3"),
        *("fault", "versions", "2.0 on 127.0.0.1"),
    ),
    "versions: dask": (
        partial(_other_version, "dask", "2025.1.0"),
        *("fault", "versions", "2025.1.0 on 127.0.0.1"),
    ),
    "versions: cloudpickle": (
        partial(_other_version, "cloudpickle", "1.0"),
        *("fault", "versions", "1.0 on 127.0.0.1"),
    ),
    "versions: pyarrow": (
        partial(_other_version, "pyarrow", "9.0"),
        *("warning", "versions", "9.0 on 127.0.0.1"),
    ),
    "packages: missing": (_missing_package, "fault", "packages", "numpy is installed here, but"),
    "modules: local": (
        partial(_missing_module, "my_helpers", "my_helpers.py"),
        *("fault", "modules", "my_helpers.py): absent on 127.0.0.1"),
    ),
    "modules: editable": (
        partial(_missing_module, "my_package", "my_package/__init__.py"),
        *("fault", "modules", "my_package): absent on 127.0.0.1"),
    ),
    "modules: changed": (_changed_module, "warning", "modules", "other files of these names"),
    "host: closed port": (_closed_port, "fault", "hosts", "no ssh server at port"),
    "host: unknown key": (_unknown_host_key, "fault", "hosts", "it may be another machine"),
    "host: junk key": (_junk_key, "fault", "hosts", "a key cannot be read: Invalid"),
    "host: no python": (_missing_python, "fault", "python", "there is no /no/such/python"),
    "host: no hyperplane": (_missing_hyperplane, "fault", "python", "has no hyperplane"),
    "host: interface": (_missing_interface, "fault", "interface", "no network interface 'ib9'"),
    "host: memory": (_small_host, "fault", "memory", "need 20 TB together"),
    "slurm: partition": (_unknown_partition, "fault", "job", "invalid partition specified"),
    "slurm: folder": (_shared_folder_without_access, "fault", "shared folder", "cannot be created"),
    "slurm: python": (_other_python_of_the_nodes, "fault", "versions", "3.9 on the nodes"),
    "kubernetes: no tag": (_image_without_a_tag, "warning", "image", "no fixed tag"),
    "kubernetes: python": (_image_of_another_python, "warning", "image", "is for Python 3.9"),
    "kubernetes: quota": (partial(_small_quota, "1Gi", "0"), "fault", "quota", "permits 1Gi"),
    "kubernetes: used quota": (
        partial(_small_quota, "8Gi", "7Gi"),
        *("warning", "quota", "7Gi is in use"),
    ),
    "kubernetes: operator": (_no_operator, "fault", "namespace", "is not installed"),
    "gateway: password": (
        _gateway_without_a_password,
        *("fault", "credentials", "'NO_SUCH_PASSWORD' is not set"),
    ),
    "gateway: no server": (_gateway_that_does_not_run, "fault", "gateway", "cannot be reached"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    plant, state, subject, text = PLANTED[name]
    report = plant(Scene(request, tmp_path))
    found = report.faults if state == "fault" else report.warnings
    assert [each for each in found if each.subject == subject and text in str(each)], str(report)
    assert "sesame" not in str(report)


def test_a_start_with_a_fault_starts_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SshEngine, "start", lambda *_: pytest.fail("something was started"))
    scene = Scene(request, tmp_path)
    scene.install_other("pandas", "2.0.3")
    with pytest.raises(hyperplane.errors.PreflightError) as caught:
        hyperplane.start(scene.ssh())
    assert isinstance(caught.value, hyperplane.StartFailed)
    [fault] = caught.value.faults
    assert fault.where == "versions"
    assert "nothing was started: pandas" in str(caught.value)


def test_warned_versions_do_not_prevent_a_start(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    scene = Scene(request, tmp_path)
    scene.install_other("pandas", "2.0.3")
    report = hyperplane.preflight(scene.ssh({"versions": "warn"}))
    assert report.faults == ()
    assert "pandas" in str(report.warnings[0])


def test_a_correct_setup_has_no_faults_and_no_warnings(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Jobs of Slurm inherit it, and the tests are local modules.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    scene = Scene(request, tmp_path)
    file = tmp_path / "in.parquet"
    pq.write_table(pa.table({"a": np.arange(1000)}), file)
    scene.kubernetes.objects["resourcequotas", "large"] = _quota("800Gi", "1Gi")
    before = sorted(tmp_path.rglob("*"))
    with socket.create_server(("127.0.0.1", 0)) as gateway:
        address = f"http://127.0.0.1:{gateway.getsockname()[1]}"
        plans = [
            scene.local(),
            scene.ssh(),
            scene.on_slurm(),
            scene.in_pods(),
            hyperplane.plan_cluster(engine="gateway", engine_options={"address": address}, **SMALL),
        ]
        before = sorted(tmp_path.rglob("*"))
        for plan in plans:
            # The modules of the tests are files of this machine; images cannot have them.
            sync = plan.engine in ("kubernetes", "gateway")
            report = hyperplane.preflight(plan, data=file, output=tmp_path / "o.parquet", sync=sync)
            assert (report.faults, report.warnings) == ((), ()), str(report)
            assert ("no node was reached" in str(report)) == (plan.engine == "slurm")
    assert sorted(tmp_path.rglob("*")) == before, "something stays behind"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_api_server_is_no_fault(
    status: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    scene = Scene(request, tmp_path)
    scene.kubernetes.refusals["GET", "daskclusters"] = [status] * 100
    report = hyperplane.preflight(scene.in_pods(), sync=True)
    assert report.faults == (), str(report)
    assert "namespace" in {finding.subject for finding in report.unchecked}


def test_a_silent_host_costs_only_the_limit(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_checks, "run_checks", partial(run_checks, limit=2))
    scene = Scene(request, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        plan = scene.ssh({"port": silent.getsockname()[1]})
        began = time.monotonic()
        report = hyperplane.preflight(plan)
        assert time.monotonic() - began < 30
        connection, _ = silent.accept()
        with connection, suppress(ConnectionResetError):
            connection.settimeout(60)
            while connection.recv(4096):  # until it is closed
                pass
    assert report.faults == ()
    assert "hosts" in {finding.subject for finding in report.unchecked}
