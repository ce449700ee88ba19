"""The DaskCluster resource of a cluster, and the Secret with its key pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from distributed.security import Security
from distributed.utils import Log, Logs

from hyperplane.clusters.custom_resource import ClusterResource, translates_errors
from hyperplane.clusters.dask.kubernetes.render import (
    API_VERSION,
    ENGINE,
    SECRET,
    TLS_FILES,
    secret_name,
)
from hyperplane.clusters.dask.remote_process import make_security
from hyperplane.platforms.kubernetes import objects, pod_status
from hyperplane.platforms.kubernetes.errors import KubernetesError

_PROGRAM_ADVICE = "check that the image has Python, dask and distributed on its PATH"
#: What to do about pods that do not run, by reason.
ADVICE = {
    "CreateContainerError": _PROGRAM_ADVICE,
    "RunContainerError": _PROGRAM_ADVICE,
    pod_status.OUT_OF_MEMORY: "raise ram_gb_per_proc, or use fewer threads",
}


class DaskClusterResource(ClusterResource):
    """The DaskCluster resource of one cluster, for use in one event loop.

    Parameters
    ----------
    name, namespace
        As those of ClusterResource.
    """

    engine: ClassVar[str] = ENGINE
    operator: ClassVar[str] = "dask-kubernetes"
    install: ClassVar[str] = (
        "Ask an administrator to install it (config/kubernetes/operator-values.yaml is an example)"
    )
    kind: ClassVar[str] = "daskcluster"
    plural: ClassVar[str] = "daskclusters"
    version: ClassVar[str] = API_VERSION
    cluster_label: ClassVar[str] = "dask.org/cluster-name"
    role_label: ClassVar[str] = "dask.org/component"
    head_role: ClassVar[str] = "scheduler"
    head_name: ClassVar[str] = "scheduler"
    advice: Mapping[str, str] = ADVICE

    def __init__(self, name: str, namespace: str | None) -> None:
        super().__init__(name, namespace)
        self.security = Security()

    @translates_errors
    async def create(self, manifest: Mapping[str, Any], tls: Mapping[str, str]) -> None:
        """Create the resource, and the Secret that it owns."""
        await self.create_resource(manifest)
        if tls:
            # After the cluster, which owns the Secret: Kubernetes deletes both together.
            await self.api.create("secrets", build_key_secret(self.content, tls))
            self.security = make_security(tls)

    async def load_access(self) -> None:
        """Load the key pair from the Secret."""
        if secret := self.annotations.get(SECRET):
            self.security = read_key_secret(await self.api.get("secrets", secret))

    @translates_errors
    async def logs(self) -> Logs:
        """Return the logs of all pods by their names, and that of the scheduler as "Scheduler"."""
        logs = Logs()
        for pod in await self.pods():
            name = pod["metadata"]["name"]
            role = pod["metadata"]["labels"].get("dask.org/component", "")
            try:
                text = (await self.api.read_log(name, role)).decode(errors="replace").rstrip("\n")
            except KubernetesError as error:
                text = str(error)
            logs["Scheduler" if role == "scheduler" else name] = Log(text)
        return logs


def build_key_secret(cluster: Mapping[str, Any], tls: Mapping[str, str]) -> dict[str, Any]:
    """Return the Secret with the key pair of a cluster.

    Parameters
    ----------
    cluster : mapping
        The DaskCluster, from the API server.
    tls : mapping
        The key pair, from :func:`hyperplane.clusters.dask.remote_process.key_pair`.
    """
    metadata = cluster["metadata"]
    labels = {**metadata.get("labels", {}), "dask.org/cluster-name": metadata["name"]}
    contents = {file: tls[field].encode() for field, file in TLS_FILES.items()}
    return objects.build_secret(cluster, secret_name(metadata["name"]), labels, contents)


def read_key_secret(secret: Mapping[str, Any]) -> Security:
    """Return the Security object of the key pair in a Secret."""
    contents = objects.read_secret(secret)
    return make_security({field: contents[file].decode() for field, file in TLS_FILES.items()})
