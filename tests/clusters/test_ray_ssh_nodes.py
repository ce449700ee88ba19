"""Places, certificates and lost connections of the engine ``ray:ssh``, without hosts."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

import hyperplane
from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.ssh.cluster import SshRayCluster
from hyperplane.clusters.ray.ssh.node_group import SshRayNodeGroup
from hyperplane.clusters.remote_nodes.certificates import CertificateAuthority
from hyperplane.errors import RequestError
from hyperplane.platforms.ssh.hosts import HostConnectionError


def make_cluster(
    monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[SshRayCluster, list[dict[str, Any]]]:
    """Return a cluster that may have two hosts, whose program is not started, and its requests."""
    plan = hyperplane.plan_cluster(
        engine="ray:ssh", num_workers=1, nprocs=2, nthreads=1, cores_per_worker=2,
        ram_gb_per_proc=0.5, engine_options={"hosts": ["one", "two"], **options},
    )  # fmt: skip
    requests: list[dict[str, Any]] = []

    class Program:
        log, is_released = "", True

        def __init__(self, *arguments: Any) -> None:
            pass

        def watch(self, owner: Any) -> None:
            pass

        def send(self, **request: Any) -> None:
            requests.append(request)

    monkeypatch.setattr("hyperplane.clusters.ray.cluster.NodeProgram", Program)
    record: Any = SimpleNamespace(scratch="none", security={"token": "secret"}, scheduler="")
    cluster = SshRayCluster(plan, record, Path("none"))
    SshRayCluster.running.clear()
    return cluster, requests


def test_worker_nodes_have_places_until_they_are_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, _ = make_cluster(monkeypatch)
    places = [cluster.place_worker(name) for name in "abc"]
    assert [(place["on_host"], place["index"]) for place in places] == [
        ("one", 0), ("one", 1), ("two", 0),
    ]  # fmt: skip
    assert {place["ram"] for place in places} == {1_000_000_000}
    cluster.check_room(1)
    with pytest.raises(RequestError, match="at most 1: 2 hosts have room for 4 worker nodes"):
        cluster.check_room(2)
    for event in ("not_added", "abandoned"):
        cluster.handle({"event": event, "name": "a", "message": "it is gone"})
        assert cluster.place_worker("a")["on_host"] == "one"
    assert cluster.end_reason == ""


def test_paths_are_absolute_because_the_program_has_another_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"client_keys": ["keys/id", "~/id"], "known_hosts": "known"}
    _, [request] = make_cluster(monkeypatch, **options)
    assert request["ssh"]["client_keys"] == [f"{tmp_path}/keys/id", str(Path.home() / "id")]
    assert request["ssh"]["known_hosts"] == f"{tmp_path}/known"
    assert "secret" not in str(request)


def test_a_node_has_a_certificate_for_its_address_that_only_this_user_can_read(
    tmp_path: Path,
) -> None:
    issued = CertificateAuthority().issue("10.0.0.7")
    other = CertificateAuthority().issue("10.0.0.7")
    certificate, root, stranger = map(
        x509.load_pem_x509_certificate, (issued.certificate, issued.authority, other.authority)
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert found == ["10.0.0.7", "127.0.0.1"]
    certificate.verify_directly_issued_by(root)
    with pytest.raises(InvalidSignature):
        certificate.verify_directly_issued_by(stranger)
    issued.write(tmp_path)
    files = driver_environment.build_variables("secret", loopback=False, tls_folder=str(tmp_path))
    for name, content in zip(("CERT", "KEY"), issued[:2], strict=True):
        file = Path(str(files[f"RAY_TLS_SERVER_{name}"]))
        assert (file.read_bytes(), file.stat().st_mode & 0o777) == (content, 0o600)


class TestLostHost:
    """A worker node whose host cannot be reached."""

    @pytest.fixture
    def events(self) -> list[dict[str, Any]]:
        """The events that the group reports."""
        return []

    @pytest.fixture
    def group(
        self, monkeypatch: pytest.MonkeyPatch, events: list[dict[str, Any]]
    ) -> SshRayNodeGroup:
        """A running cluster, whose worker node has ended."""
        monkeypatch.setenv("RAY_raylet_start_wait_time_s", "30")  # the group sets another value
        group = SshRayNodeGroup(lambda **event: events.append(event))
        group._requests, group._starts = {"a": {"worker": "a"}}, {"a": 2}
        group.handle({"ready": True})
        return group

    def test_is_tried_again_without_a_limit_of_starts(
        self, group: SshRayNodeGroup, events: list[dict[str, Any]]
    ) -> None:
        error = HostConnectionError({"one": "no answer"}, 1)
        for _ in range(20):
            group._handle_failure("a", error)
            assert group._due.pop("a") > time.monotonic() - 60
            group._starts["a"] += 1
        [event] = events
        assert event["event"] == "warning"
        assert "is started again when its host is reached" in event["message"]
        assert "one: no answer" in event["message"]

    def test_is_abandoned_after_half_an_hour(
        self, group: SshRayNodeGroup, events: list[dict[str, Any]]
    ) -> None:
        group._unreachable["a"] = time.monotonic() - 2000
        for _ in range(3):
            group._handle_failure("a", HostConnectionError({"one": "no answer"}, 1))
        assert events[-1]["event"] == "abandoned"

    @pytest.mark.parametrize(
        ("own", "other", "reason"),
        [
            (("127.0.0.1", 1), ("127.0.0.1", 2), "loopback address"),
            (("10.0.0.1", 1), ("", 0), "through another host"),
            (None, None, "through another host"),
        ],
    )
    def test_addresses_that_other_hosts_cannot_use_are_refused(
        self, group: SshRayNodeGroup, own: Any, other: Any, reason: str
    ) -> None:
        ends = {"sockname": own, "peername": other}

        class Connections:
            async def connection(self, name: str) -> Any:
                return SimpleNamespace(get_extra_info=ends.get)

        group._connections = Connections()  # type: ignore[assignment]
        with pytest.raises(HostConnectionError, match=reason):
            group._loop.run(group._find_addresses("one"))
