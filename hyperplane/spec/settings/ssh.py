"""Settings of hosts that are reached through ssh, and of the ssh engine of Dask."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hyperplane.spec.settings.base import EngineSettings, RemoteSettings

Port = Annotated[int, Field(ge=1, le=65535)]


class HostSettings(EngineSettings):
    """Hosts, and how this process logs in to them; ``config/engines.yaml`` explains each."""

    section: ClassVar[str] = "ssh"

    hosts: tuple[str, ...] = ()
    username: str | None = None
    port: Port | None = None
    client_keys: tuple[str, ...] = ()
    known_hosts: str | None = None
    connect_timeout: Annotated[float, Field(gt=0)] = 20
    python: str | None = None
    security: Literal["tls", "none"] = "tls"


class SshSettings(RemoteSettings, HostSettings):
    """Settings of the ssh engine; ``config/engines.yaml`` explains each."""

    scheduler_host: str | None = None
    interface: str | None = None
    local_directory: str | None = None
