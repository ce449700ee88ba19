"""The RayCluster resource of a cluster, its pods, its Secret, and the Job that owns it."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from hyperplane.clusters.custom_resource import ClusterResource, translates_errors
from hyperplane.clusters.ray.kubernetes.render import (
    API_VERSION,
    CLUSTER_LABEL,
    ENGINE,
    KUBERAY_LABEL,
    SECRET,
    TOKEN_KEY,
    job_name,
    secret_name,
)
from hyperplane.clusters.start_progress import report_start
from hyperplane.core.errors import EngineError, StartFailed, StartTimeout
from hyperplane.core.units import plural
from hyperplane.platforms.kubernetes import objects, pod_status
from hyperplane.platforms.kubernetes.batch_job import BATCH
from hyperplane.platforms.kubernetes.errors import INVALID, ObjectNotFound, RequestRefused

#: Path of the only group of workers, and how often its number is changed if others change it, too.
_GROUP, _ATTEMPTS = "/spec/workerGroupSpecs/0", 3
_PROGRAM_ADVICE = "check that the image has Python, ray[default] and cryptography on its PATH"


class ClusterCredentials(NamedTuple):
    """What clients of a cluster need to connect, and what its Secret has.

    Parameters
    ----------
    token : str
        The token.
    certificate, key, authority : bytes
        Certificate of clients, as PEM; empty without TLS.
    authority_key : bytes
        Key of the authority; empty without TLS, and for clients.
    """

    token: str
    certificate: bytes = b""
    key: bytes = b""
    authority: bytes = b""
    authority_key: bytes = b""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'with TLS' if self.key else 'without TLS'}>"

    @classmethod
    def create(cls, tls: bool) -> ClusterCredentials:
        """Return the access to a new cluster."""
        token = secrets.token_hex(32)
        if not tls:
            return cls(token)
        from hyperplane.clusters.remote_nodes.certificates import CertificateAuthority

        authority = CertificateAuthority()
        return cls(token, *authority.issue("127.0.0.1"), authority.export()[1])

    def to_contents(self) -> dict[str, bytes]:
        """Return the contents of the Secret."""
        contents = {TOKEN_KEY: self.token.encode()}
        if self.key:
            contents |= {
                "ca.crt": self.authority,
                "ca.key": self.authority_key,
                "authority.pem": self.authority,
                "certificate.pem": self.certificate,
                "key.pem": self.key,
            }
        return contents

    @classmethod
    def from_contents(cls, contents: Mapping[str, bytes]) -> ClusterCredentials:
        """Return the access of clients to a running cluster, from its Secret."""
        files = ("certificate.pem", "key.pem", "authority.pem")
        return cls(contents[TOKEN_KEY].decode(), *(contents.get(file, b"") for file in files))

    def write_files(self, folder: Path) -> str:
        """Write the certificate of clients; return the folder, or an empty text without TLS."""
        if not self.key:
            return ""
        from hyperplane.clusters.remote_nodes.certificates import Certificate

        Certificate(self.certificate, self.key, self.authority).write(folder)
        return str(folder)


class RayClusterResource(ClusterResource):
    """The RayCluster resource of one cluster, for use in one event loop.

    Parameters
    ----------
    name, namespace
        As those of ClusterResource.
    """

    engine: ClassVar[str] = ENGINE
    operator: ClassVar[str] = "KubeRay"
    install: ClassVar[str] = (
        "Ask an administrator to install it: helm install kuberay-operator kuberay-operator --repo "
        "https://ray-project.github.io/kuberay-helm"
    )
    kind: ClassVar[str] = "raycluster"
    plural: ClassVar[str] = "rayclusters"
    version: ClassVar[str] = API_VERSION
    cluster_label: ClassVar[str] = KUBERAY_LABEL
    role_label: ClassVar[str] = "ray.io/node-type"
    head_role: ClassVar[str] = "head"
    head_name: ClassVar[str] = "head"
    advice: Mapping[str, str] = {
        "CreateContainerError": _PROGRAM_ADVICE,
        "RunContainerError": _PROGRAM_ADVICE,
        pod_status.OUT_OF_MEMORY: "raise the memory of worker nodes, or scheduler_ram of the head",
    }

    def __init__(self, name: str, namespace: str | None) -> None:
        super().__init__(name, namespace)
        self.access = ClusterCredentials("")
        #: Whether a Job owns the cluster.
        self.has_job = False

    @translates_errors
    async def create(
        self, manifest: Mapping[str, Any], job: Mapping[str, Any] | None, access: ClusterCredentials
    ) -> None:
        """Create the Job, the resource that it owns, and the Secret that the resource owns."""
        if job is not None:
            owner = objects.build_owner_reference(await self._create_job(job))
            metadata = {**manifest["metadata"], "ownerReferences": [owner]}
            manifest = {**manifest, "metadata": metadata}
        await self.create_resource(manifest)
        metadata = self.content["metadata"]
        labels = {**metadata.get("labels", {}), CLUSTER_LABEL: self.name}
        secret = objects.build_secret(
            self.content, secret_name(self.name), labels, access.to_contents()
        )
        await self.api.create("secrets", secret)
        # Only pods issue certificates, with the key in the Secret.
        self.access = access._replace(authority_key=b"")

    async def _create_job(self, job: Mapping[str, Any]) -> dict[str, Any]:
        self.has_job = True  # without an answer it may exist
        try:
            return await self.api.create("jobs", job, BATCH)
        except (RequestRefused, ObjectNotFound):
            self.has_job = False
            raise

    async def load_access(self) -> None:
        """Load the token and the certificate of clients from the Secret."""
        secret = self.annotations.get(SECRET)
        if secret is None:
            message = f"cluster {self.name!r} was not started by hyperplane: it has no annotation"
            raise EngineError(ENGINE, f"{message} {SECRET} with the name of its Secret")
        self.access = ClusterCredentials.from_contents(
            objects.read_secret(await self.api.get("secrets", secret))
        )
        owners = self.content["metadata"].get("ownerReferences", ())
        job = ("Job", job_name(self.name))
        self.has_job = any((owner["kind"], owner["name"]) == job for owner in owners)

    @translates_errors
    async def explain_idle_job(self) -> str:
        """Return that the pod of the Job does not run, with the reason; empty if none is known."""
        if not self.has_job:
            return ""
        labels = f"{CLUSTER_LABEL}={self.name}"
        pods = await self.api.list("pods", labels=labels)
        events = pod_status.select_events(await self.api.list_warnings(), job_name(self.name))
        if any(pod_status.is_ready(pod) for pod in pods):
            return ""
        if pending := pod_status.find_pending_pod(pods, events, self.advice):
            return f"does not run: {pending.text}"
        reason = pod_status.explain_waiting(pods, events)
        if not reason:
            return ""
        # An autoscaler may add a node.
        is_unscheduled = any(map(pod_status.is_unscheduled, pods))
        return f"{'cannot be scheduled yet' if is_unscheduled else 'does not run'}: {reason}"

    @translates_errors
    async def list_workers(self) -> dict[str, str]:
        """Return the addresses of the ready worker pods by their names."""
        return {
            pod["metadata"]["name"]: str(pod["status"].get("podIP", ""))
            for pod in await self.pods("worker")
            if pod_status.is_ready(pod)
        }

    @translates_errors
    async def wait_for_workers(
        self,
        count: int,
        deadline: float,
        announce: Callable[[str], None],
        known: Sequence[str] = (),
    ) -> None:
        """Call a function with the name of each new worker pod; return when ``count`` are ready."""
        announced, began = {*known}, time.monotonic()
        while True:
            for pod in await self.pods("worker"):
                name = pod["metadata"]["name"]
                if name not in announced and "deletionTimestamp" not in pod["metadata"]:
                    announced.add(name)
                    announce(name)
            ready = len(await self.list_workers())
            if ready >= count:
                return
            reason = await self.explain_pending()
            report_start(self.name, ready, reason)
            if await self.is_gone():
                raise StartFailed(ENGINE, "the cluster was deleted while it started")
            if (now := time.monotonic()) > deadline:
                waited = f"within {now - began:.0f} s (timeout); {self._outcome}"
                started = f"{ready} of {plural(count, 'worker node')} have started {waited}"
                raise StartTimeout(ENGINE, f"{started}. {reason}")
            await asyncio.sleep(0.5)

    @translates_errors
    async def scale(self, count: int) -> tuple[int, list[str]]:
        """Request more worker pods; return the new number, and the names of those before."""
        before = [pod["metadata"]["name"] for pod in await self.pods("worker")]
        total = await self._change_replicas(count)
        self._outcome = "the cluster continues without them"
        return total, before

    @translates_errors
    async def withdraw(self, count: int, before: Sequence[str]) -> None:
        """Request fewer worker pods, and delete as many that did not exist before."""
        added = [pod for pod in await self.pods("worker") if pod["metadata"]["name"] not in before]
        added.sort(key=pod_status.is_ready)  # a ready one may have replaced an older one
        names = [pod["metadata"]["name"] for pod in added[:count]]
        path, strategy = f"{_GROUP}/scaleStrategy", {"workersToDelete": names}
        await self._change_replicas(-count, {"op": "add", "path": path, "value": strategy})

    async def _change_replicas(self, change: int, *operations: Mapping[str, Any]) -> int:
        """Change the number of worker pods by the operations of a JSON patch, and return it."""
        path = f"{_GROUP}/replicas"
        for attempt in range(_ATTEMPTS):
            content = await self.api.get(self.plural, self.name, self.version)
            replicas = int(content["spec"]["workerGroupSpecs"][0].get("replicas", 0))
            total = max(0, replicas + change)
            # The first operation fails if another program has changed it in between.
            patch = [
                {"op": "test", "path": path, "value": replicas},
                {"op": "replace", "path": path, "value": total},
                *operations,
            ]
            try:
                await self.api.patch(self.plural, self.name, json.dumps(patch), self.version)
                return total
            except RequestRefused as error:
                if error.status != INVALID:
                    raise
                if attempt == _ATTEMPTS - 1:
                    message = "the number of worker pods was not changed: another program changed "
                    raise EngineError(ENGINE, f"{message}it at the same time: {error}") from error
        raise AssertionError("unreachable")

    async def delete_objects(self) -> None:
        """Delete the resource, and the Job that owns it."""
        await super().delete_objects()
        await self._delete_job()

    async def _delete_job(self) -> None:
        if self.has_job:
            with suppress(ObjectNotFound):
                await self.api.delete("jobs", job_name(self.name), BATCH)

    @translates_errors
    async def discard(self, timeout: float) -> None:
        """Delete what this object has created or loaded; wait ``timeout`` seconds for its end."""
        if self.may_delete:
            await self.delete(timeout)
        elif self.api.kr8s is not None:
            await self._delete_job()
