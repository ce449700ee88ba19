"""The settings of the gateway engine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hyperplane.spec.settings.base import RemoteSettings

#: What an option of a gateway can be told of a plan. Memory ends in its unit: ``_gb`` is 10**9
#: bytes, ``_gib`` 2**30.
Quantity = Literal[
    "nthreads",
    "ngpus",
    "ram_bytes",
    "ram_gb",
    "ram_gib",
    "scheduler_cpu",
    "scheduler_ram_bytes",
    "scheduler_ram_gb",
    "scheduler_ram_gib",
    "idle_timeout",
    "environment",
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


def _option(name: object) -> object:
    """The name of an option, in which ``-`` and ``_`` are one and the same to Dask."""
    return name.replace("-", "_") if isinstance(name, str) else name


Option = Annotated[Name, BeforeValidator(_option)]
# Neither a user and password before "@", nor what dask-gateway would fill in from the environment.
Url = Annotated[str, Field(pattern=r"^https?://[^\s@{}]+$")]
ProxyAddress = Annotated[str, Field(pattern=r"^((gateway|tls)://)?[^\s@/{}]+:[0-9]+$")]
Port = Annotated[int, Field(ge=1, le=65535)]


def _of_the_manual() -> dict[str, Quantity | None]:
    """The options of the examples in dask-gateway's manual."""
    return {"worker_cores": "nthreads", "worker_memory": "ram_gib"}


class GatewaySettings(RemoteSettings):
    """Settings of the gateway engine; ``config/engines.yaml`` explains each."""

    address: Url | None = None
    proxy_address: Port | ProxyAddress | None = None
    public_address: Url | None = None
    auth: Literal["basic", "jupyterhub", "kerberos"] | None = None
    username: Annotated[str, Field(pattern=r"^[^\s:{}]+$")] | None = None
    password_variable: Name | None = None
    plan_options: Annotated[dict[Option, Quantity | None], Field(default_factory=_of_the_manual)]
    options: Annotated[dict[Option, Any], Field(default_factory=dict, repr=False)]

    @property
    def options_from_plan(self) -> dict[str, Quantity]:
        """The options that follow the plan; null in a file takes out one that another file has."""
        return {name: what for name, what in self.plan_options.items() if what is not None}
