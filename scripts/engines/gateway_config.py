"""Configuration of the dask-gateway server that gateway_up starts."""

# ruff: noqa: F821 - traitlets gives this file its `c`

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from dask_gateway_server.auth import Authenticator, unauthorized
from dask_gateway_server.backends.local import UnsafeLocalBackend, is_running
from dask_gateway_server.models import User
from dask_gateway_server.options import Float, Integer, Mapping, Options, String

STATE = Path(os.environ["HYPERPLANE_GATEWAY"])
server = json.loads((STATE / "server.json").read_text())


class Listed(Authenticator):
    """Users of users.json, each with a password; dask-gateway's own has one password for all."""

    async def authenticate(self, request):
        """The user of a request, or 401."""
        kind, _, told = request.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            name, _, password = base64.b64decode(told).decode("latin1").partition(":")
            users = json.loads((STATE / "users.json").read_text())
            if name in users and users[name] == password:
                return User(name)
        raise unauthorized("Basic")


class PromptBackend(UnsafeLocalBackend):
    """The local backend with short looks at whether a process has ended.

    The base class doubles the time to the next look, up to 6 s, and stops the scheduler only when
    the workers have ended: a cluster whose processes end within 2 s takes 10 s.
    """

    async def stop_process(self, pid):
        """Ask a process to end, at last with SIGKILL, and return when it has ended."""
        for number, seconds in (
            (signal.SIGINT, self.sigint_timeout),
            (signal.SIGTERM, self.sigterm_timeout),
            (signal.SIGKILL, self.sigkill_timeout),
        ):
            if not is_running(pid):
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            for _ in range(seconds * 20):
                await asyncio.sleep(0.05)
                if not is_running(pid):
                    return


def handle(options):
    """What the options mean to the backend."""
    return {
        "worker_cores": options.worker_cores,
        "worker_memory": int(options.worker_memory * 2**30),
        "idle_timeout": options.idle_timeout,
        "environment": {
            "DASK_TEMPORARY_DIRECTORY": str(STATE / "scratch"),
            **options.environment,
        },
    }


def options_of(user):
    """The options that dask-gateway's documentation has as its example, and three more."""
    return Options(
        Integer("worker_cores", 1, min=1, max=2, label="Worker cores"),
        Float("worker_memory", 1, min=0.25, max=4, label="Worker memory (GiB)"),
        Float("idle_timeout", 0, min=0, label="Idle timeout (s)"),
        String("image", "hyperplane", label="Image"),
        Mapping("environment", {}, label="Environment variables"),
        handler=handle,
    )


c.DaskGateway.backend_class = PromptBackend
c.DaskGateway.authenticator_class = Listed
c.DaskGateway.address = server["private"]
c.Proxy.address = server["address"].removeprefix("http://")
c.Proxy.tcp_address = server["proxy_address"].removeprefix("gateway://")
c.Backend.cluster_options = options_of
c.PromptBackend.clusters_directory = str(STATE / "clusters")
# distributed installs dask-scheduler and dask-worker, its defaults, no longer. The modules start in
# two thirds of the time of `dask worker`, which imports the commands of all other packages too; and
# pages of workers, which nothing here reads, take a second of CPU time each.
c.ClusterConfig.scheduler_cmd = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
c.ClusterConfig.worker_cmd = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-dashboard"]
c.ClusterConfig.cluster_max_workers = 4
# A lost worker is seen after seconds, and not after half a minute.
c.DBBackendBase.cluster_heartbeat_period = 2
c.DBBackendBase.cluster_status_period = 2
c.DBBackendBase.worker_status_period = 2
