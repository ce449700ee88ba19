"""Render a plan as a bash script that submits a program of Spark to Kubernetes.

The properties are those of Spark 3.5: https://spark.apache.org/docs/3.5.7/running-on-kubernetes.html
"""

from __future__ import annotations

import math
from typing import Any, cast

from hyperplane.clusters.pod_requests import select_worker_nodes
from hyperplane.clusters.spark.configuration import build_security, format_properties
from hyperplane.core.units import parse_bytes
from hyperplane.platforms.kubernetes.kubeconfig import read_server, resolve_kubeconfig
from hyperplane.platforms.kubernetes.manifest_yaml import dump_yaml
from hyperplane.platforms.kubernetes.objects import MANAGED_BY, escape_variables, parse_pairs
from hyperplane.platforms.kubernetes.pods import (
    build_configured_pod,
    build_container,
    select_nodes,
)
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import SparkKubernetesSettings
from hyperplane.spec.settings.kubernetes import millicores
from hyperplane.spec.settings.spark import PropertyValue
from hyperplane.spec.spark_options import MIB, SparkOptions, subtract_overhead

#: Address of the API server for a program in a pod, if there is no kubeconfig.
_IN_POD = "https://kubernetes.default.svc"
#: Properties that the plan sets; the engine refuses them in the settings.
OWN_PROPERTIES = frozenset(
    {
        "spark.app.name",
        "spark.driver.cores",
        "spark.driver.memory",
        "spark.driver.memoryOverhead",
        "spark.executor.instances",
        "spark.executor.memoryOverhead",
        "spark.io.encryption.enabled",
        "spark.kubernetes.authenticate.driver.serviceAccountName",
        "spark.kubernetes.container.image",
        "spark.kubernetes.container.image.pullPolicy",
        "spark.kubernetes.container.image.pullSecrets",
        "spark.kubernetes.context",
        "spark.kubernetes.driver.limit.cores",
        "spark.kubernetes.driver.request.cores",
        "spark.kubernetes.executor.limit.cores",
        "spark.kubernetes.executor.request.cores",
        "spark.kubernetes.namespace",
    }
)
_SCRIPT = """\
#!/bin/bash
# Submits a program of Spark with {executors} executors, and waits until it has ended:
#   bash SCRIPT local:///FOLDER/OF/THE/IMAGE/program.py [ARGUMENT...]
# It needs spark-submit of Spark 3.5 and the configuration of kubectl.
set -euo pipefail
if [ $# = 0 ]; then echo "usage: bash $0 local:///FOLDER/program.py [ARGUMENT...]" >&2; exit 64; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/driver.yaml" <<'END'
{driver}END
cat > "$folder/executor.yaml" <<'END'
{executor}END
# In place of spark-defaults.conf.
cat > "$folder/spark.properties" <<'END'
{properties}END
spark-submit --properties-file "$folder/spark.properties" \\
    --conf spark.kubernetes.driver.podTemplateFile="$folder/driver.yaml" \\
    --conf spark.kubernetes.executor.podTemplateFile="$folder/executor.yaml" "$@"
"""


def render_script(plan: ClusterPlan) -> str:
    """Return the script of a plan, without contacting Kubernetes."""
    settings = cast(SparkKubernetesSettings, plan.settings)
    return _SCRIPT.format(
        executors=plan.dask_workers,
        driver=dump_yaml(_build_template(settings, "driver")),
        executor=dump_yaml(_build_template(settings, "executor")),
        properties=format_properties(build_properties(plan, settings)),
    )


def build_properties(
    plan: ClusterPlan, settings: SparkKubernetesSettings
) -> dict[str, PropertyValue]:
    """Return the properties of the program: those of the settings, then those of the plan."""
    options, worker = SparkOptions.of(plan.options), plan.worker
    driver = parse_bytes(str(settings.driver_ram))
    heap = subtract_overhead(driver)
    kubeconfig = resolve_kubeconfig(settings.namespace, settings.context)
    cores = f"{max(1, math.floor(worker.cores_per_worker * 1000 / worker.nprocs))}m"
    properties: dict[str, PropertyValue] = {
        **settings.properties,
        **build_security(encrypted=True),
        "spark.app.name": plan.name,
        "spark.driver.cores": math.ceil(millicores(settings.driver_cpu) / 1000),
        "spark.driver.memory": f"{heap // MIB}m",
        "spark.driver.memoryOverhead": f"{(driver - heap) // MIB}m",
        "spark.executor.cores": worker.nthreads,
        "spark.executor.instances": plan.dask_workers,
        "spark.executor.memory": f"{options.heap // MIB}m",
        "spark.executor.memoryOverhead": f"{options.overhead // MIB}m",
        "spark.io.encryption.enabled": True,
        "spark.kubernetes.container.image": settings.image or "",
        "spark.kubernetes.driver.limit.cores": f"{millicores(settings.driver_cpu)}m",
        "spark.kubernetes.driver.request.cores": f"{millicores(settings.driver_cpu)}m",
        "spark.kubernetes.executor.limit.cores": cores,
        "spark.kubernetes.executor.request.cores": cores,
        "spark.master": f"k8s://{read_server(settings.context) or _IN_POD}",
        "spark.submit.deployMode": "cluster",
        "spark.ui.enabled": settings.dashboard,
        "spark.ui.killEnabled": False,
    }
    optional = {
        "spark.kubernetes.authenticate.driver.serviceAccountName": settings.service_account,
        "spark.kubernetes.container.image.pullPolicy": settings.image_pull_policy,
        "spark.kubernetes.container.image.pullSecrets": ",".join(settings.image_pull_secrets),
        "spark.kubernetes.context": kubeconfig.get("context"),
        "spark.kubernetes.namespace": kubeconfig.get("namespace") or settings.namespace,
    }
    properties |= {key: value for key, value in optional.items() if value}
    labels = {**MANAGED_BY, **parse_pairs(settings.labels)}
    for role, nodes in (
        ("driver", select_nodes(settings, "", "")),
        ("executor", select_worker_nodes(plan, settings)),
    ):
        prefix = f"spark.kubernetes.{role}"
        properties |= {f"{prefix}.label.{key}": text for key, text in labels.items()}
        annotations = parse_pairs(settings.annotations)
        properties |= {f"{prefix}.annotation.{key}": text for key, text in annotations.items()}
        properties |= {f"{prefix}.node.selector.{key}": text for key, text in nodes.items()}
    for key, text in parse_pairs(settings.environ).items():
        value = escape_variables(text)
        properties |= dict.fromkeys(
            (f"spark.kubernetes.driverEnv.{key}", f"spark.executorEnv.{key}"), value
        )
    return properties


def _build_template(settings: SparkKubernetesSettings, role: str) -> dict[str, Any]:
    """Return the template of a pod without privileges; Spark adds everything else."""
    pod = build_configured_pod(settings, {})
    pod.pop("serviceAccountName", None)
    # The driver creates the pods of its executors.
    pod["automountServiceAccountToken"] = role == "driver"
    container = build_container(f"spark-kubernetes-{role}", settings.image)
    return {"apiVersion": "v1", "kind": "Pod", "spec": {**pod, "containers": [container]}}
