"""Which clusters the platforms of all configured engines list, and what they do not delay."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import dask.config
import pytest
from kubernetes_server import ApiServer, running_api_server

from hyperplane.clusters import cluster_listing, records
from hyperplane.clusters.cluster_listing import list_clusters, stop_listed
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.clusters.remote_nodes import slurm_listing
from hyperplane.errors import EngineError
from hyperplane.platforms.kubernetes.objects import find_owner

pytestmark = [pytest.mark.process]


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH without the Slurm of this machine, and no JupyterHub."""
    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LOGNAME", "ada")
    with (
        running_api_server(tmp_path, monkeypatch) as running,
        dask.config.set({"hyperplane.engines.kubernetes.image": "registry.example/flights:1"}),
    ):
        yield running


def add_cluster(server: ApiServer, kind: str, name: str, owner: str = "ada") -> None:
    labels = {"app.kubernetes.io/managed-by": "hyperplane", "hyperplane.dev/owner": owner}
    server.respond(
        "POST",
        f"/apis/x/v1/namespaces/lab/{kind}",
        json.dumps({"metadata": {"name": name, "labels": labels}}).encode(),
    )


def program(folder: Path, name: str, lines: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
    file.chmod(0o755)


def with_slurm(folder: Path, squeue: str) -> None:
    program(folder, "squeue", squeue)
    program(folder, "sbatch", "exit 1")
    program(folder, "scancel", f"echo $* > {folder}/cancelled")


def test_without_configured_engines_nothing_is_asked() -> None:
    assert list_clusters([]) == ((), ())


def test_clusters_of_this_user_on_kubernetes(server: ApiServer) -> None:
    add_cluster(server, "daskclusters", "flights")
    add_cluster(server, "daskclusters", "of-ben", "ben")
    add_cluster(server, "rayclusters", "held")
    listing = list_clusters([])
    assert listing.warnings == ()
    assert [(item.name, item.engine, item.where) for item in listing.clusters] == [
        ("flights", "kubernetes", "namespace lab"),
        ("held", "ray:kubernetes", "namespace lab"),
    ]
    flights = listing.clusters[0]
    stop_listed(flights)
    assert ("daskclusters", "flights") not in server.objects
    with pytest.raises(EngineError, match="has no cluster 'flights'"):
        stop_listed(flights)
    assert [item.name for item in list_clusters([]).clusters] == ["held"]


def test_the_name_of_all_users_of_an_image_is_that_of_no_user(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shared_owners() -> list[str]:
        return [item.shared_owner for item in list_clusters([]).clusters]

    add_cluster(server, "daskclusters", "flights", "jovyan")
    monkeypatch.setenv("LOGNAME", "jovyan")
    assert shared_owners() == ["jovyan"]
    labels = ["hyperplane.dev/owner=jovyan"]
    with dask.config.set({"hyperplane.engines.kubernetes.labels": labels}):
        assert shared_owners() == [""]
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    assert shared_owners() == []
    add_cluster(server, "daskclusters", "held", "ada")
    assert shared_owners() == [""]


def test_a_cluster_with_a_record_on_this_machine_is_not_listed_twice(server: ApiServer) -> None:
    add_cluster(server, "rayclusters", "held")
    record = records.ClusterRecord("held", "ray:kubernetes", "", "", 1, 1.0, 1, 1, 1.0)
    assert list_clusters([record]).clusters == ()


def test_a_refusal_is_one_line(server: ApiServer) -> None:
    server.refusals["GET", "daskclusters"] = [403] * 5
    listing = list_clusters([])
    [warning] = listing.warnings
    assert warning.startswith("kubernetes: ")
    assert "refused with 403" in warning
    assert "\n" not in warning


def test_jobs_of_slurm_are_grouped_by_the_name_of_their_cluster(programs: Path) -> None:
    lines = [
        "hyperplane:slurm|41|RUNNING|2026-01-02T03:04:05|flights",
        "hyperplane:slurm|42|PENDING|2026-01-02T03:05:00|flights",
        "hyperplane:ray:slurm|43|RUNNING|2026-01-02T03:04:05|held|with a bar",
        "(null)|44|RUNNING|2026-01-02T03:04:05|flights",
        "some text|45|RUNNING|N/A|other",
    ]
    with_slurm(programs, "\n".join(f"echo '{line}'" for line in lines))
    listing = list_clusters([])
    assert listing.warnings == ()
    held, flights = listing.clusters
    assert held == ListedCluster(
        "held|with a bar", "ray:slurm", "Slurm", "1 RUNNING", "2026-01-02T03:04:05", ("43",)
    )
    assert (flights.status, flights.jobs) == ("1 PENDING, 1 RUNNING", ("41", "42"))
    stop_listed(flights)
    assert (programs / "cancelled").read_text() == "41 42\n"
    program(programs, "scancel", "echo no access >&2; exit 1")
    with pytest.raises(EngineError, match="no access"):
        stop_listed(flights)


def test_a_slurm_that_refuses_is_one_line_for_all_its_engines(programs: Path) -> None:
    with_slurm(programs, "echo 'slurm_load_jobs error' >&2; exit 1")
    [warning] = list_clusters([]).warnings
    message = "the queue of Slurm cannot be read: slurm_load_jobs error"
    assert warning == f"ray:slurm, slurm, spark:slurm: {message}"


def test_a_platform_that_does_not_answer_delays_by_the_time_limit(
    programs: Path, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_listing, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(cluster_listing, "MARGIN_SECONDS", 20.0)
    with_slurm(programs, "exec /bin/sleep 600")
    add_cluster(server, "daskclusters", "flights")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with dask.config.set({"hyperplane.engines.gateway.address": address}):
            began = time.monotonic()
            listing = list_clusters([])
    assert time.monotonic() - began < 60
    assert [item.name for item in listing.clusters] == ["flights"]
    gateway, slurm = listing.warnings
    assert gateway.startswith("gateway: ")
    assert slurm.startswith("ray:slurm, slurm, spark:slurm: the queue of Slurm cannot be read")


def test_the_comment_of_the_jobs_is_the_one_that_is_searched() -> None:
    line = f"{slurm_listing.job_comment('slurm')}|1|RUNNING|N/A|flights"
    assert slurm_listing.parse_listing("slurm", line)[0].name == "flights"


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        ("ada", "ada"),
        ("ada@EXAMPLE.ORG", "ada-EXAMPLE.ORG"),
        ("@", "unknown"),
        ("a" * 70, "a" * 63),
    ],
)
def test_the_label_of_the_owner(login: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", login)
    assert find_owner([]) == expected
    monkeypatch.setenv("JUPYTERHUB_USER", "ada@hub")
    assert find_owner([]) == "ada-hub"
    assert find_owner(["hyperplane.dev/owner=lovelace"]) == "lovelace"
