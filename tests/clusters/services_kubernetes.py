"""A real one-node Kubernetes with the operator, for the tests of its engine.

The project's script starts it if scripts/engines/kubernetes_build has built the programs. One that
is already running is used, and not changed.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
import pytest
from services import need, until

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts" / "engines"
EXAMPLES = ROOT / "config" / "kubernetes"
STATE = Path(os.environ.get("HYPERPLANE_ENGINES", "~/.cache/hyperplane/engines")).expanduser()
FOLDER = STATE / "kubernetes"
RUN = FOLDER / "run"
NAMESPACE = "lab"
IMAGE = "test.invalid/hyperplane/dask:1"
#: Fractions of cores, because a test machine has two; images must not be downloaded.
OPTIONS: dict[str, Any] = {
    "image": IMAGE,
    "image_pull_policy": "Never",
    "namespace": NAMESPACE,
    "cpu_reserved": 0.1,
    "scheduler_cpu": "200m",
    "scheduler_ram": "600Mi",
}
#: Seconds for a test and its setup, which may include the build.
LONGEST = 240 if (FOLDER / "bin" / "kubelet").exists() else 2700
PROGRAMS = ("etcd", "containerd", "runc", "kubectl", "iptables", "conntrack", "nsenter")


def _lacking() -> str:
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"no {', '.join(missing)}; scripts/engines/kubernetes_up names the Debian packages"
    if os.geteuid() != 0:
        return "only root can make network namespaces and control groups"
    if not (FOLDER / "bin" / "kubelet").exists():
        return "no Kubernetes is built here; scripts/engines/kubernetes_build does it once"
    return ""


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def kubectl(*arguments: str, text: str | None = None) -> str:
    """Return the output of kubectl, run as administrator."""
    environment = {**os.environ, "KUBECONFIG": str(RUN / "admin.json")}
    command = ["kubectl", *arguments]
    found = subprocess.run(
        command, env=environment, input=text, capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, f"{' '.join(command)}: {found.stderr}"
    return found.stdout


@functools.cache
def minor_version() -> int:
    """Return the second number of the version of the API server, such as 31."""
    version = json.loads(kubectl("get", "--raw", "/version"))
    return int(version["minor"].rstrip("+"))


def skip_before(minor: int, feature: str) -> None:
    """Skip the test on a Kubernetes that lacks a feature."""
    if minor_version() < minor:
        pytest.skip(f"{feature} need Kubernetes 1.{minor}; this one is 1.{minor_version()}")


def objects(kind: str, cluster: str, component: str = "") -> list[dict[str, Any]]:
    """Objects of a cluster."""
    labels = f"dask.org/cluster-name={cluster}"
    labels += f",dask.org/component={component}" if component else ""
    found = kubectl("-n", NAMESPACE, "get", kind, "-l", labels, "-o", "json")
    items: list[dict[str, Any]] = json.loads(found)["items"]
    return items


def clusters() -> list[str]:
    """Names of all clusters."""
    return kubectl("-n", NAMESPACE, "get", "daskclusters", "-o", "name").split()


def left(kinds: str) -> str:
    """Return the names of all objects of clusters."""
    arguments = ("-l", "dask.org/cluster-name", "-o", "name")
    return kubectl("-n", NAMESPACE, "get", kinds, *arguments)


@functools.cache
def start_kubernetes() -> None:
    """Start Kubernetes once for all modules; it ends with the run."""
    # If services must run, the script below reports what is missing, and builds what is not built.
    if os.environ.get("HYPERPLANE_REQUIRE_SERVICES") != "1":
        what = _lacking()
        need(what, not what)
    there = (RUN / "kubelet.pid").exists()
    STATE.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PATH": _path(), "PYTHON": sys.executable}
    # Into a file, because daemons would keep a pipe open.
    with (STATE / "kubernetes.log").open("w") as log:
        up = [str(SCRIPTS / "kubernetes_up")]
        done = subprocess.run(up, env=environment, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode:
        pytest.fail((STATE / "kubernetes.log").read_text()[-4000:])
    if not there:
        atexit.register(subprocess.run, [SCRIPTS / "kubernetes_down"], env=environment)


@contextmanager
def service() -> Iterator[dict[str, Any]]:
    """Kubernetes, used with only the permissions of the example rbac.yaml."""
    start_kubernetes()
    sys.path.insert(0, str(SCRIPTS))
    import dask_kubernetes.operator  # noqa: F401 - adds its defaults to Dask's configuration

    if minor_version() < 27:
        import kubernetes_shim  # noqa: F401 - for versions that kr8s no longer supports
    before = os.environ.get("KUBECONFIG")
    try:
        kubectl("apply", "-f", str(EXAMPLES / "rbac.yaml"))
        os.environ["KUBECONFIG"] = str(RUN / "user.json")
        section = "hyperplane.engines.kubernetes"
        with dask.config.set({f"{section}.{key}": value for key, value in OPTIONS.items()}):
            yield OPTIONS
        # A kubelet takes up to a minute to remove pods that have ended.
        until(lambda: not left("pods"), 150)
    finally:
        sys.path.remove(str(SCRIPTS))
        os.environ.pop("KUBECONFIG", None)
        if before is not None:
            os.environ["KUBECONFIG"] = before
