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


class UserListAuthenticator(Authenticator):
    """Authenticator for the users of users.json; dask-gateway's has one password for all users."""

    async def authenticate(self, request):
        """Return the user of a request, or raise 401."""
        kind, _, credentials = request.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            name, _, password = base64.b64decode(credentials).decode("latin1").partition(":")
            users = json.loads((STATE / "users.json").read_text())
            if name in users and users[name] == password:
                return User(name)
        raise unauthorized("Basic")


class PromptBackend(UnsafeLocalBackend):
    """The local backend with a short polling interval for processes that end.

    The base class doubles its interval up to 6 s, and stops the scheduler only when the workers
    have ended, so closing a cluster whose processes end within 2 s takes 10 s.
    """

    async def stop_process(self, pid):
        """Terminate a process, finally with SIGKILL, and return when it has ended."""
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
    """Return the backend's configuration for the values of the options."""
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
    """Return the example options of dask-gateway's documentation, and three more."""
    return Options(
        Integer("worker_cores", 1, min=1, max=2, label="Worker cores"),
        Float("worker_memory", 1, min=0.25, max=4, label="Worker memory (GiB)"),
        Float("idle_timeout", 0, min=0, label="Idle timeout (s)"),
        String("image", "hyperplane", label="Image"),
        Mapping("environment", {}, label="Environment variables"),
        handler=handle,
    )


c.DaskGateway.backend_class = PromptBackend
c.DaskGateway.authenticator_class = UserListAuthenticator
c.DaskGateway.address = server["private"]
c.Proxy.address = server["address"].removeprefix("http://")
c.Proxy.tcp_address = server["proxy_address"].removeprefix("gateway://")
c.Backend.cluster_options = options_of
c.PromptBackend.clusters_directory = str(STATE / "clusters")
# distributed no longer installs dask-scheduler and dask-worker, the defaults. The modules start in
# two thirds of the time of `dask worker`, which also imports the commands of other packages. The
# pages of workers are not used here and take a second of CPU time each.
c.ClusterConfig.scheduler_cmd = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
c.ClusterConfig.worker_cmd = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-dashboard"]
c.ClusterConfig.cluster_max_workers = 4
# Notice a lost worker after seconds instead of half a minute.
c.DBBackendBase.cluster_heartbeat_period = 2
# The defaults of a minute are less than the time that the tests wait.
c.DBBackendBase.cluster_start_timeout = c.DBBackendBase.worker_start_timeout = 240
# The default is twice the period; a scheduler on a busy machine may not run within that time.
c.DBBackendBase.cluster_heartbeat_timeout = 60
c.DBBackendBase.cluster_status_period = 2
c.DBBackendBase.worker_status_period = 2
