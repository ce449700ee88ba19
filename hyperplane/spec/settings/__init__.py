"""The settings of engines and jobs, as ``config/`` holds them; a file for each."""

from __future__ import annotations

from hyperplane.spec.settings.base import EngineSettings, RemoteSettings
from hyperplane.spec.settings.jobs import JobSettings
from hyperplane.spec.settings.local import LocalSettings
from hyperplane.spec.settings.ssh import SshSettings

#: Engine -> the model of its section.
ENGINES: dict[str, type[EngineSettings]] = {"local": LocalSettings, "ssh": SshSettings}

__all__ = [
    "ENGINES",
    "EngineSettings",
    "JobSettings",
    "LocalSettings",
    "RemoteSettings",
    "SshSettings",
]
