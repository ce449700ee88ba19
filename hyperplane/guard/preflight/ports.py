"""Checks of ports and network interfaces of this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping

from hyperplane.guard.preflight.environment import PreflightEnvironment
from hyperplane.guard.preflight.report import PreflightFinding, State
from hyperplane.guard.preflight.versions import join_places


def check_dashboard_port(port: int, forwarded: bool = False) -> Iterator[PreflightFinding]:
    """Yield a finding on the requested port of the dashboard; none for any free port (0).

    A port that is in use is a fault only if a remote dashboard is ``forwarded`` to it: a scheduler
    on this machine takes another port.
    """
    if not port:
        return
    try:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
    except OSError as error:
        reason = error.strerror or str(error)
        text = f"port {port} of this machine cannot be opened for the dashboard: {reason}"
        if not forwarded:
            text += "; the scheduler takes another port"
        state: State = "fault" if forwarded else "warning"
        yield PreflightFinding("dashboard port", state, text, "Pass another dashboard_port")
    else:
        yield PreflightFinding("dashboard port", "ok", f"port {port} is free")


def check_interfaces(
    name: str | None, key: str, workers: Mapping[str, PreflightEnvironment]
) -> Iterator[PreflightFinding]:
    """Yield a fault if places lack the network interface of a setting.

    Parameters
    ----------
    name : str or None
        Name of the interface; nothing is checked without one.
    key : str
        Key of the setting.
    workers : mapping
        Place -> environment of its workers.
    """
    missing = [place for place, found in workers.items() if name not in found.interfaces]
    if name is None or not missing:
        return
    usable = ", ".join(workers[missing[0]].interfaces)
    text = f"{join_places(missing)}: there is no network interface {name!r}, only {usable}"
    yield PreflightFinding("interface", "fault", text, f"set {key} to one that all machines have")
