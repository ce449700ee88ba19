"""Time to start two workers on an engine, and to the first result.

A is the engine's library without hyperplane, B is ``hyperplane.initialize_cluster``. Each run is a
separate process, alternating, on services of this machine (``scripts/engines/`` starts them):

    scripts/engines/ssh_up 3
    python benchmarks/engines.py ssh --rounds 3
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from abab import print_report, run_alternately

STATE = Path(os.environ.get("HYPERPLANE_ENGINES", Path.home() / ".cache/hyperplane/engines"))

JOB = """
import json, sys, time
import dask.distributed
def measure(start):
    began = time.perf_counter()
    client, cluster = start()
    client.wait_for_workers(2, timeout=300)
    usable = time.perf_counter() - began
    assert client.submit(sum, [1, 2]).result() == 3
    first = time.perf_counter() - began
    client.close(); cluster.close()
    closed = time.perf_counter() - began - first
    print(json.dumps({"usable cluster": usable, "first result": first, "closed": closed}))
if __name__ == "__main__":
    measure(start)
"""

OURS = """
import json
from hyperplane import initialize_cluster
def start():
    return initialize_cluster(
        num_workers=2, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, cores_per_worker=1,
        engine="ENGINE", engine_options=json.loads('''OPTIONS'''),
    )
"""

SSH = """
from dask.distributed import Client, SSHCluster
def start():
    cluster = SSHCluster(
        ["10.77.0.11", "10.77.0.11", "10.77.0.12"],
        connect_options={"known_hosts": "STATE/ssh/known_hosts", "client_keys": ["STATE/ssh/id"]},
        worker_options={"nthreads": 1, "memory_limit": 500_000_000},
    )
    return Client(cluster), cluster
"""

GATEWAY = """
import os
from dask_gateway import BasicAuth, Gateway
def start():
    auth = BasicAuth("ada", os.environ["ADA"])
    gateway = Gateway("ADDRESS", proxy_address="PROXY", auth=auth)
    cluster = gateway.new_cluster(worker_cores=1, worker_memory=500_000_000 / 2**30)
    cluster.scale(2)
    return cluster.get_client(), cluster
"""

SLURM = """
from dask.distributed import Client
from distributed.security import Security
from dask_jobqueue import SLURMCluster
def start():
    cluster = SLURMCluster(
        cores=1, processes=1, memory="500MB", interface="lo", security=Security.temporary(),
        shared_temp_directory="/tmp", log_directory="/tmp",
    )
    cluster.scale(2)
    return Client(cluster), cluster
"""

SCRIPTS = Path(__file__).parents[1] / "scripts" / "engines"
#: kr8s warns about the Kubernetes version of kubernetes_up, which it does not support.
OLD = """
import sys, warnings
warnings.filterwarnings("ignore", message="Kubernetes version")
sys.path.insert(0, "SCRIPTS")
import kubernetes_shim
"""

KUBERNETES = """
import uuid
from dask.distributed import Client
from dask_kubernetes.operator import KubeCluster, make_cluster_spec
def start():
    spec = make_cluster_spec(f"bare-{uuid.uuid4().hex[:8]}", image="IMAGE", n_workers=2)
    for part in ("scheduler", "worker"):
        [container] = spec["spec"][part]["spec"]["containers"]
        container["imagePullPolicy"] = "Never"
        # The only command in the image is "dask".
        container["args"] = ["dask", part, *container["args"][1:]]
        container["resources"] = {"limits": {"memory": "600Mi"}, "requests": {"cpu": "100m"}}
    cluster = KubeCluster(custom_cluster_spec=spec, namespace="lab")
    return Client(cluster), cluster
"""


def ssh() -> tuple[str, dict[str, object]]:
    """Return the code for the bare library, and the engine options of hyperplane."""
    return SSH.replace("STATE", str(STATE)), {
        "hosts": ["10.77.0.11", "10.77.0.12"],
        "client_keys": [f"{STATE}/ssh/id"],
        "known_hosts": f"{STATE}/ssh/known_hosts",
    }


def gateway() -> tuple[str, dict[str, object]]:
    """Return the same for a gateway; the password is in the environment."""
    server = json.loads((STATE / "gateway" / "server.json").read_text())
    os.environ["ADA"] = json.loads((STATE / "gateway" / "users.json").read_text())["ada"]
    bare = GATEWAY.replace("ADDRESS", server["address"]).replace("PROXY", server["proxy_address"])
    return bare, {
        "address": server["address"],
        "proxy_address": server["proxy_address"],
        "auth": "basic",
        "username": "ada",
        "password_variable": "ADA",
    }


def slurm() -> tuple[str, dict[str, object]]:
    """Return the same for Slurm jobs."""
    os.environ["SLURM_CONF"] = str(STATE / "slurm" / "slurm.conf")
    return SLURM, {"interface": "lo"}


def kubernetes() -> tuple[str, dict[str, object]]:
    """Return the same for Kubernetes; image and user are those of the tests."""
    os.environ["KUBECONFIG"] = str(STATE / "kubernetes" / "run" / "admin.json")
    image = "test.invalid/hyperplane/dask:1"
    return OLD.replace("SCRIPTS", str(SCRIPTS)) + KUBERNETES.replace("IMAGE", image), {
        "image": image,
        "image_pull_policy": "Never",
        "namespace": "lab",
        "cpu_reserved": 0.1,
        "scheduler_cpu": "200m",
        "scheduler_ram": "600Mi",
    }


ENGINES = {"ssh": ssh, "gateway": gateway, "slurm": slurm, "kubernetes": kubernetes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    bare, options = ENGINES[arguments.engine]()
    before = OLD.replace("SCRIPTS", str(SCRIPTS)) if arguments.engine == "kubernetes" else ""
    ours = before + OURS.replace("ENGINE", arguments.engine).replace("OPTIONS", json.dumps(options))
    scripts = {
        "bare": ["-c", bare + JOB],
        "hyperplane": ["-c", ours + JOB],
    }
    results = run_alternately(scripts, arguments.rounds)
    print_report(f"{arguments.engine}, two workers", results, "hyperplane", "bare")


if __name__ == "__main__":
    main()
