"""Settings of a model server, and the checks of a request for one."""

from __future__ import annotations

import ipaddress
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

from hyperplane.core.argument_checks import describe_value, find_count_faults, find_flag_faults
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.units import is_boolean, parse_bytes
from hyperplane.objectstore.save_target import resolve_target

#: Variable with the token that requests must have.
TOKEN_VARIABLE = "HYPERPLANE_SERVE_TOKEN"  # noqa: S105 - a name
_MAX_WORKERS = 64
_MAX_WAIT_MS = 60_000
_MAX_BODY = 2**31 - 1
_VISIBLE = "visible ASCII characters without blanks, at least one"


@dataclass(frozen=True)
class ServeSettings:
    """What a server process needs to know; :meth:`to_dict` is sent to child processes.

    Parameters
    ----------
    model, registry : str or None
        Model and registry, of which at least one is given.
    token : str or None
        Token that requests must have.
    batch_wait : float
        Seconds that a request waits for others if its batch is not full.
    max_body : int
        Maximum bytes of the body of a request.
    name : str or None
        Name of the service.
    certificate, key : str or None
        Files in PEM format of the certificate of the server and of its key, for TLS.
    """

    model: str | None
    registry: str | None
    host: str
    port: int
    token: str | None = field(repr=False)
    batch_size: int
    batch_wait: float
    max_body: int
    max_instances: int
    workers: int
    trusted: bool
    name: str | None
    storage_options: dict[str, Any] | None = field(repr=False)
    certificate: str | None = None
    key: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON has them."""
        return asdict(self)

    @property
    def warning(self) -> str:
        """Warning about a server without encryption that other machines can reach, or ""."""
        if self.certificate is not None or is_loopback(self.host):
            return ""
        return (
            f"requests to {self.host}, and their tokens, are not encrypted; give a certificate and "
            "a key, or let only a proxy with TLS connect to this port"
        )


def make_settings(
    model: Any,
    *,
    registry: Any,
    host: Any,
    port: Any,
    token: Any,
    batch_size: Any,
    batch_wait_ms: Any,
    max_body: Any,
    max_instances: Any,
    workers: Any,
    trusted: Any,
    name: Any,
    storage_options: Mapping[str, Any] | None,
    certificate: Any,
    key: Any,
) -> ServeSettings:
    """Return settings; raise a RequestError with all faults of the arguments."""
    faults = [
        *_find_url_faults(model, registry, storage_options),
        *find_count_faults("port", port, least=0, most=65535),
        *find_count_faults("batch_size", batch_size),
        *find_count_faults("max_instances", max_instances),
        *find_count_faults("workers", workers, most=_MAX_WORKERS),
        *find_flag_faults(trusted=trusted),
        *_find_tls_faults(certificate, key),
    ]
    if not is_number(batch_wait_ms) or not 0 <= batch_wait_ms <= _MAX_WAIT_MS:
        allowed = f"milliseconds from 0 to {_MAX_WAIT_MS:,}"
        faults.append(Fault("batch_wait_ms", describe_value(batch_wait_ms), allowed))
    body, found = _parse_body(max_body)
    faults += found
    if name is not None and not _is_service_name(name):
        allowed = "a letter or digit, then up to 127 letters, digits, and . _ -"
        faults.append(Fault("name", describe_value(name), allowed))
    if not _is_json(storage_options):
        allowed = "a mapping with values of JSON"
        faults.append(Fault("storage_options", f"a {type(storage_options).__name__}", allowed))
    if token is None:
        token = os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and not _is_token(token):
        faults.append(Fault("token", "a text with other characters or none", _VISIBLE))
    if not isinstance(host, str) or not host or any(each.isspace() for each in host):
        faults.append(Fault("host", describe_value(host), "an address or a host name"))
    elif token is None and not is_loopback(host):
        advice = f"set {TOKEN_VARIABLE}, or give a token (--token-file)"
        allowed = "127.0.0.1, ::1 or localhost without a token"
        faults.append(Fault("host", repr(host), allowed, advice))
    check(faults)
    return ServeSettings(
        model=None if model is None else os.fspath(model),
        registry=None if registry is None else os.fspath(registry),
        host=host,
        port=int(port),
        token=token,
        batch_size=int(batch_size),
        batch_wait=float(batch_wait_ms) / 1000,
        max_body=body,
        max_instances=int(max_instances),
        workers=int(workers),
        trusted=trusted,
        name=name,
        storage_options=None if storage_options is None else dict(storage_options),
        certificate=None if certificate is None else str(Path(certificate).absolute()),
        key=None if key is None else str(Path(key).absolute()),
    )


def is_number(value: Any) -> bool:
    """Return whether a value is a number and not a boolean."""
    return isinstance(value, Real) and not is_boolean(value)


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can connect to an address.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _find_url_faults(model: Any, registry: Any, options: Mapping[str, Any] | None) -> list[Fault]:
    if model is None and registry is None:
        advice = "or give registry to serve all of its models"
        return [Fault("model", "nothing", "the path or URL of a saved model", advice)]
    faults = []
    for where, url in (("model", model), ("registry", registry)):
        is_name = where == "model" and registry is not None
        if is_name and isinstance(url, str) and url and "/" not in url:
            continue  # the registry checks it
        if is_name and url is not None:
            allowed = "the name of a model in the registry"
            faults.append(Fault(where, describe_value(url), allowed))
        elif url is not None:
            try:
                resolve_target(url, options)
            except RequestError as error:
                faults += [
                    Fault(
                        where if each.where == "url" else each.where,
                        each.asked,
                        each.allowed,
                        each.advice,
                    )
                    for each in error.faults
                ]
    return faults


def _is_file(path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - Path raises if it is too long


def _find_tls_faults(certificate: Any, key: Any) -> list[Fault]:
    """Return faults of the files of a certificate and its key, which are loaded as a check."""
    faults = [
        Fault(name, describe_value(path), "the path of a file in PEM format")
        for name, path in (("certificate", certificate), ("key", key))
        if not (path is None or (isinstance(path, str | os.PathLike) and _is_file(path)))
    ]
    if certificate is None and key is not None:
        advice = "give the certificate of this key"
        faults.append(Fault("certificate", "nothing", "the path of a file in PEM format", advice))
    if faults or certificate is None:
        return faults
    try:
        # A key with a passphrase would ask for it on the terminal.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            certificate, key, password=lambda: b""
        )
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        name, path = ("certificate", certificate) if key is None else ("key", key)
        allowed = "a key in PEM format, without a passphrase, that belongs to the certificate"
        reason = getattr(error, "reason", None)  # of OpenSSL
        return [Fault(name, repr(os.fspath(path)), f"{allowed} ({reason})" if reason else allowed)]
    return []


def _parse_body(value: Any) -> tuple[int, list[Fault]]:
    allowed = "bytes, or a size such as 10MB, at most 2GB"
    size = value
    if isinstance(value, str):
        try:
            size = parse_bytes(value)
        except (ValueError, OverflowError):
            size = None
    if is_number(size) and 1 <= size <= _MAX_BODY and size == int(size):
        return int(size), []
    return 0, [Fault("max_body", describe_value(value), allowed)]


def _is_service_name(name: Any) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name) <= 128
        and name.isascii()
        and name[0].isalnum()
        and all(each.isalnum() or each in "._-" for each in name)
    )


def _is_token(token: Any) -> bool:
    return isinstance(token, str) and bool(token) and all("!" <= each <= "~" for each in token)


def _is_json(options: Any) -> bool:
    """Return whether options can be sent to a child process."""
    if options is None:
        return True
    try:
        json.dumps(options)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(options, Mapping)
