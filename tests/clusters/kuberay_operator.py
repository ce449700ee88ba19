"""A small operator that turns RayClusters into pods and a service, for tests without KubeRay.

Names, labels, commands, health checks and variables are those that KubeRay 1.7 gives, as far as a
RayCluster of this package has them. It has no autoscaling, no updates and no fault tolerance.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from services_kubernetes import kubectl

Object = dict[str, Any]
#: Name of the operator in a message.
NAME = "the operator of the tests"


def build_service(cluster: Object) -> Object:
    """Return the headless service of the head."""
    name, [container] = cluster["metadata"]["name"], _head(cluster)["spec"]["containers"]
    labels = {"ray.io/cluster": name, "ray.io/node-type": "head"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(cluster, f"{name}-head-svc", labels),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [
                {"name": port["name"], "port": port["containerPort"]} for port in container["ports"]
            ],
        },
    }


def build_pod(cluster: Object, role: str, group: Object, group_name: str, number: int) -> Object:
    """Return a pod of a group, which runs ``ray start``."""
    name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
    template = json.loads(json.dumps(group["template"]))
    pod, host = template["spec"], f"{name}-head-svc.{namespace}.svc.cluster.local"
    container = pod["containers"][0]
    parameters = {
        "block": "true",
        "dashboard-agent-listen-port": "52365",
        "metrics-export-port": "8080",
        **({} if role == "head" else {"address": f"{host}:6379"}),
        **group["rayStartParams"],
    }
    flags = [
        f"--{key}" + ("" if value == "true" else f"={value}") for key, value in parameters.items()
    ]
    words = ["ray", "start", *(["--head"] if role == "head" else []), *sorted(flags)]
    variables = [
        {"name": "FQ_RAY_IP", "value": host},
        {"name": "RAY_ADDRESS", "value": "127.0.0.1:6379" if role == "head" else f"{host}:6379"},
    ]
    for initial in pod.get("initContainers", ()):
        initial["env"] = [*initial.get("env", ()), variables[0]]
    if role == "worker":
        check = f"until ray health-check --address {host}:6379; do sleep 2; done"
        waiting = {
            key: container[key] for key in ("image", "env", "volumeMounts", "securityContext")
        }
        if policy := container.get("imagePullPolicy"):
            waiting["imagePullPolicy"] = policy
        command = ["/bin/bash", "-c", "--"]
        waiting |= {"name": "wait-gcs-ready", "command": command, "args": [check]}
        pod["initContainers"] = [*pod.get("initContainers", ()), waiting]
    container |= {
        "command": ["/bin/bash", "-c", "--"],
        "args": [f"ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {' '.join(words)}"],
        "env": [*container["env"], *variables],
        "volumeMounts": [*container["volumeMounts"], {"name": "shm", "mountPath": "/dev/shm"}],
        "readinessProbe": _probe(5, 60),
        "livenessProbe": _probe(20, 60) | {"initialDelaySeconds": 120},
    }
    memory = {"medium": "Memory", "sizeLimit": container["resources"]["requests"]["memory"]}
    pod["volumes"] = [*pod.get("volumes", ()), {"name": "shm", "emptyDir": memory}]
    labels = {
        **template.get("metadata", {}).get("labels", {}),
        "ray.io/cluster": name,
        "ray.io/node-type": role,
        "ray.io/group": group_name,
        "ray.io/is-ray-node": "yes",
    }
    metadata = _metadata(cluster, f"{name[:50]}-{group_name}-{number}", labels)
    metadata["annotations"] = template.get("metadata", {}).get("annotations", {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def _head(cluster: Object) -> Object:
    template: Object = cluster["spec"]["headGroupSpec"]["template"]
    return template


def _metadata(cluster: Object, name: str, labels: dict[str, str]) -> Object:
    """Return the metadata of an object that ends with its cluster."""
    fields = {key: cluster["metadata"][key] for key in ("name", "uid")}
    owner = {"apiVersion": cluster["apiVersion"], "kind": "RayCluster", **fields}
    return {"name": name, "labels": labels, "ownerReferences": [owner]}


def _probe(period: int, failures: int) -> Object:
    """Return a health check of a node, as those of KubeRay for Ray 2.53 and newer."""
    check = {"path": "/api/healthz", "port": 52365}
    limits = {"periodSeconds": period, "timeoutSeconds": 10, "failureThreshold": failures}
    return {"httpGet": check, **limits}


class RayOperator:
    """Creates the objects of all RayClusters of a namespace until it is closed.

    Parameters
    ----------
    namespace : str
        The namespace.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._stop = threading.Event()
        self._number = 0
        self.errors: list[Exception] = []
        self._thread = threading.Thread(target=self._run, name=NAME)
        self._thread.start()

    def close(self) -> None:
        """End the operator."""
        self._stop.set()
        self._thread.join()

    def _kubectl(self, *arguments: str, content: Object | None = None) -> Any:
        text = None if content is None else json.dumps(content)
        printed = kubectl("-n", self._namespace, *arguments, text=text)
        return json.loads(printed) if "json" in arguments else None

    def _run(self) -> None:
        while not self._stop.wait(1):
            try:
                for cluster in self._kubectl("get", "rayclusters", "-o", "json")["items"]:
                    if "deletionTimestamp" not in cluster["metadata"]:
                        self._reconcile(cluster)
            except Exception as error:  # noqa: BLE001 - a cluster that was deleted meanwhile
                self.errors.append(error)

    def _reconcile(self, cluster: Object) -> None:
        name = cluster["metadata"]["name"]
        if not cluster.get("status", {}).get("state"):
            self._kubectl("apply", "-f", "-", content=build_service(cluster))
        selector = f"ray.io/cluster={name}"
        pods = self._kubectl("get", "pods", "-l", selector, "-o", "json")["items"]
        spec, ready = cluster["spec"], 0
        groups = [("head", "headgroup", spec["headGroupSpec"], 1)]
        for group in spec["workerGroupSpecs"]:
            groups.append(("worker", group["groupName"], group, group["replicas"]))
        for role, group_name, group, wanted in groups:
            found = [
                pod
                for pod in pods
                if pod["metadata"]["labels"]["ray.io/group"] == group_name
                and "deletionTimestamp" not in pod["metadata"]
            ]
            for name in group.get("scaleStrategy", {}).get("workersToDelete", ()):
                if name in {pod["metadata"]["name"] for pod in found}:
                    self._kubectl("delete", "pod", name, "--wait=false")
                    found = [pod for pod in found if pod["metadata"]["name"] != name]
            ready += sum(map(_is_ready, found))
            for _ in range(wanted - len(found)):
                self._number += 1
                pod = build_pod(cluster, role, group, group_name, self._number)
                self._kubectl("create", "-f", "-", content=pod)
        if ready == sum(wanted for *_, wanted in groups):
            patch = json.dumps({"status": {"state": "ready", "readyWorkerReplicas": ready - 1}})
            arguments = ("patch", "raycluster", name, "--subresource=status", "--type=merge")
            self._kubectl(*arguments, "-p", patch)


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
