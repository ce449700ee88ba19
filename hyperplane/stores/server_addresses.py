"""Host and port of the server of a store, as far as they are known before the first request."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import fsspec

if TYPE_CHECKING:
    from hyperplane.stores.locations import Store

_DEFAULT_PORTS = {"http": 80, "https": 443}
_GOOGLE, _AMAZON, _AZURE = ("gs", "gcs"), ("s3", "s3a"), ("abfs", "abfss", "az", "adl")
#: Names of options that lead connections another way than the address says.
_REROUTING_OPTIONS = ("proxy", "proxies", "connector", "session", "trust_env", "get_client")


class ServerAddress(NamedTuple):
    """Host and port of the server of a store."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def find_server_address(store: Store, url: str) -> ServerAddress | None:
    """The server of a store; None when it is not known, or connections may take another way."""
    text = _endpoint_url(store, url)
    if text is None or is_rerouted(store.system, store.options):
        return None
    return parse_server_address(text)


def find_server_address_before_opening(
    url: str, options: Mapping[str, Any]
) -> ServerAddress | None:
    """The server of a store whose file system looks for credentials while it is made.

    gcsfs looks for them for 17 s and longer where no server answers. What follows from the
    options, its configuration and the environment is read from a file system without credentials.
    """
    protocol = url.partition("://")[0]
    if protocol not in _GOOGLE or "::" in url or options.get("token") == "anon":
        return None
    try:
        anonymous = {**options, "token": "anon", "skip_instance_cache": True}
        system = fsspec.filesystem(protocol, **anonymous)
    except Exception:  # noqa: BLE001 - the caller makes it with the credentials, and says why not
        return None
    base = getattr(system, "base", None)
    return None if base is None or is_rerouted(system, options) else parse_server_address(str(base))


def parse_server_address(url: str) -> ServerAddress | None:
    """The server that a URL of HTTP names; None where requests go to a proxy."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:  # the library below says what is wrong with it
        return None
    if not host or port is None or _is_behind_proxy(parts.scheme, host):
        return None
    return ServerAddress(parts.scheme, host, port)


def has_host_per_request(store: Store) -> bool:
    """Whether botocore chooses the host of each request, by bucket, region and configuration."""
    system = store.system
    return (
        store.protocol in _AMAZON
        and hasattr(type(system), "s3")  # other file systems than s3fs may be registered
        and not getattr(system, "asynchronous", False)
        and not is_rerouted(system, store.options)
    )


def _endpoint_url(store: Store, url: str) -> str | None:
    """The URL of the server, as far as the public properties of each file system tell it."""
    if store.protocol in ("http", "https"):
        return url
    system = store.system
    if store.protocol in _AMAZON:
        client = getattr(system, "client_kwargs", None) or {}
        found: Any = getattr(system, "endpoint_url", None) or client.get("endpoint_url")
    elif store.protocol in _GOOGLE:
        found = getattr(system, "base", None)
    elif store.protocol in _AZURE:
        service = getattr(system, "service_client", None)
        found = getattr(service, "url", None) or getattr(system, "account_url", None)
    else:
        return None
    return found if isinstance(found, str) and found else None


def is_rerouted(system: Any, options: Mapping[str, Any]) -> bool:
    """Whether options, or defaults of fsspec's configuration, change the way of connections."""
    todo: list[Any] = [options, getattr(system, "storage_options", None)]
    while todo:
        one = todo.pop()
        if isinstance(one, Mapping):
            if any(
                mark in str(name) and value
                for name, value in one.items()
                for mark in _REROUTING_OPTIONS
            ):
                return True
            todo.extend(one.values())
    return False


def _is_behind_proxy(scheme: str, host: str) -> bool:
    proxies = urllib.request.getproxies()
    return bool({scheme, "all"} & proxies.keys()) and not urllib.request.proxy_bypass(host)
