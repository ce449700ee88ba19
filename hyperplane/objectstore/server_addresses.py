"""Find the host and port of a store's server before the first request to it."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import fsspec

if TYPE_CHECKING:
    from hyperplane.objectstore.locations import Store

_DEFAULT_PORTS = {"http": 80, "https": 443}
_GOOGLE, _AMAZON, _AZURE = ("gs", "gcs"), ("s3", "s3a"), ("abfs", "abfss", "az", "adl")
#: Names of options by which connections may bypass the address of the URL.
_REROUTING_OPTIONS = ("proxy", "proxies", "connector", "session", "trust_env", "get_client")


class ServerAddress(NamedTuple):
    """Host and port of a store's server."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def find_server_address(store: Store, url: str) -> ServerAddress | None:
    """Return the server of a store; None if it is unknown or connections may bypass it."""
    text = _endpoint_url(store, url)
    if text is None or is_rerouted(store.system, store.options):
        return None
    return parse_server_address(text)


def find_server_address_before_opening(
    url: str, options: Mapping[str, Any]
) -> ServerAddress | None:
    """Return the server of a Google store before its file system searches for credentials.

    gcsfs searches for credentials when it is constructed, for 17 s and longer if no server
    responds. A file system without credentials has the same endpoint and is constructed at once.
    """
    protocol = url.partition("://")[0]
    if protocol not in _GOOGLE or "::" in url or options.get("token") == "anon":
        return None
    try:
        anonymous = {**options, "token": "anon", "skip_instance_cache": True}
        system = fsspec.filesystem(protocol, **anonymous)
    except Exception:  # noqa: BLE001 - the caller constructs it again and reports the error
        return None
    base = getattr(system, "base", None)
    return None if base is None or is_rerouted(system, options) else parse_server_address(str(base))


def parse_server_address(url: str) -> ServerAddress | None:
    """Return the server named by an HTTP URL; None if requests go to a proxy."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:  # the client library reports the invalid URL
        return None
    if not host or port is None or _is_behind_proxy(parts.scheme, host):
        return None
    return ServerAddress(parts.scheme, host, port)


def has_host_per_request(store: Store) -> bool:
    """Return whether botocore chooses the host of each request by bucket, region, and profile."""
    system = store.system
    return (
        store.protocol in _AMAZON
        and hasattr(type(system), "s3")  # a file system other than s3fs may be registered
        and not getattr(system, "asynchronous", False)
        and not is_rerouted(system, store.options)
    )


def _endpoint_url(store: Store, url: str) -> str | None:
    """Return the server's URL from the public properties of the file system; None if unknown."""
    if store.protocol in ("http", "https"):
        return url
    system = store.system
    if store.protocol in _AMAZON:
        client = getattr(system, "client_kwargs", None) or {}
        server_url: Any = getattr(system, "endpoint_url", None) or client.get("endpoint_url")
    elif store.protocol in _GOOGLE:
        server_url = getattr(system, "base", None)
    elif store.protocol in _AZURE:
        service = getattr(system, "service_client", None)
        server_url = getattr(service, "url", None) or getattr(system, "account_url", None)
    else:
        return None
    return server_url if isinstance(server_url, str) and server_url else None


def is_rerouted(system: Any, options: Mapping[str, Any]) -> bool:
    """Return whether options or fsspec's configuration redirect connections, as by a proxy."""
    pending: list[Any] = [options, getattr(system, "storage_options", None)]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            if any(
                option in str(name) and value
                for name, value in item.items()
                for option in _REROUTING_OPTIONS
            ):
                return True
            pending.extend(item.values())
    return False


def _is_behind_proxy(scheme: str, host: str) -> bool:
    proxies = urllib.request.getproxies()
    return bool({scheme, "all"} & proxies.keys()) and not urllib.request.proxy_bypass(host)
