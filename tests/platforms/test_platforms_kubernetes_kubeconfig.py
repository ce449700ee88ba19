"""The configuration of Kubernetes that is used, and the imports of the platform."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from hyperplane.platforms.kubernetes import kubeconfig
from hyperplane.platforms.kubernetes.kubeconfig import (
    is_in_pod,
    read_pod_namespace,
    resolve_kubeconfig,
)

FOLDER = Path(kubeconfig.__file__).parent
#: What clusters and jobs are made of; the platform serves both.
USERS = ("dask", "distributed", "dask_kubernetes", "hyperplane.clusters", "hyperplane.jobs")


def test_the_first_current_context_and_its_namespace_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = [{"name": "far", "context": {"namespace": "lab"}}, {"name": "near"}]
    (tmp_path / "a").write_text(json.dumps({"contexts": contexts}))
    (tmp_path / "b").write_text(json.dumps({"current-context": "far"}))
    (tmp_path / "c").write_text("- not a mapping")
    files = f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/c:{tmp_path}/none"
    monkeypatch.setenv("KUBECONFIG", files)
    far = {"kubeconfig": files, "context": "far", "namespace": "lab"}
    assert resolve_kubeconfig(None, None) == far
    assert resolve_kubeconfig("mine", None) == {**far, "namespace": "mine"}
    assert resolve_kubeconfig(None, "near") == {"kubeconfig": files, "context": "near"}


def test_without_a_configuration_nothing_is_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert resolve_kubeconfig("mine", None) == {}


def test_a_pod_knows_its_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path / "none")
    assert (is_in_pod(), read_pod_namespace()) == (False, "")
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "namespace").write_text("lab\n")
    assert (is_in_pod(), read_pod_namespace()) == (True, "lab")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert not is_in_pod()


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_the_platform_knows_neither_clusters_nor_jobs(file: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert not [one for one in imported if any(f"{one}.".startswith(f"{user}.") for user in USERS)]
