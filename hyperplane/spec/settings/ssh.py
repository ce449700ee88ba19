"""Settings of the ssh engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hyperplane.spec.settings.base import RemoteSettings

Port = Annotated[int, Field(ge=1, le=65535)]


class SshSettings(RemoteSettings):
    """Settings of the ssh engine; ``config/engines.yaml`` explains each."""

    hosts: tuple[str, ...] = ()
    scheduler_host: str | None = None
    username: str | None = None
    port: Port | None = None
    client_keys: tuple[str, ...] = ()
    known_hosts: str | None = None
    connect_timeout: Annotated[float, Field(gt=0)] = 20
    python: str | None = None
    interface: str | None = None
    local_directory: str | None = None
    security: Literal["tls", "none"] = "tls"
