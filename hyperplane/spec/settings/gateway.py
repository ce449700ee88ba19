"""Settings of the gateway engine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hyperplane.core.pydantic_faults import text_like
from hyperplane.spec.settings.base import LeaseSettings

#: Values of a plan that can be the value of a gateway option. Suffixes are units of memory:
#: ``_gb`` is 10**9 bytes, ``_gib`` 2**30.
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
Name = Annotated[
    str,
    text_like(
        r"^[A-Za-z_][A-Za-z0-9_]*$", "a name of letters, digits and _, such as GATEWAY_PASSWORD"
    ),
]


def _normalize_option_name(name: object) -> object:
    """Normalize the name of an option; Dask treats ``-`` and ``_`` as equal."""
    return name.replace("-", "_") if isinstance(name, str) else name


Option = Annotated[Name, BeforeValidator(_normalize_option_name)]
# Excludes credentials before "@", and "{...}", which dask-gateway replaces from the environment.
Url = Annotated[
    str,
    text_like(
        r"^https?://[^\s@{}]+$",
        "an address without a user and password, such as https://gateway.example.com",
    ),
]
ProxyAddress = Annotated[
    str,
    text_like(
        r"^((gateway|tls)://)?[^\s@/{}]+:[0-9]+$",
        "a host and port, such as gateway://gateway.example.com:8786",
    ),
]
Port = Annotated[int, Field(ge=1, le=65535)]


def _default_options() -> dict[str, Quantity | None]:
    """Return the options of the examples in dask-gateway's manual."""
    return {"worker_cores": "nthreads", "worker_memory": "ram_gib"}


class GatewaySettings(LeaseSettings):
    """Settings of the gateway engine; ``config/engines.yaml`` explains each."""

    address: Url | None = None
    proxy_address: Port | ProxyAddress | None = None
    public_address: Url | None = None
    auth: Literal["basic", "jupyterhub", "kerberos"] | None = None
    username: (
        Annotated[
            str, text_like(r"^[^\s:{}]+$", "a user name without blanks, : and braces, such as ada")
        ]
        | None
    ) = None
    password_variable: Name | None = None
    plan_options: Annotated[dict[Option, Quantity | None], Field(default_factory=_default_options)]
    options: Annotated[dict[Option, Any], Field(default_factory=dict, repr=False)]

    @property
    def options_from_plan(self) -> dict[str, Quantity]:
        """Options whose values come from the plan, without those that are set to null."""
        return {
            name: quantity for name, quantity in self.plan_options.items() if quantity is not None
        }
