"""Parameters of jobs without secrets, as records, lists and pages show them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from hyperplane.jobs.definition.credential_detection import detect_credential
from hyperplane.jobs.execution.redaction import redact_text
from hyperplane.objectstore.redaction import redact_url

#: What is shown in place of a secret; the number of its characters is one, too.
MASK = "******"
#: Last words of names whose values are secrets.
_SECRET_WORDS = {
    "password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "pwd",
    "apikey",
}  # fmt: skip
#: Words before a last word ``key`` that make it a secret; a key of a table is none.
_KEYS = {"api", "access", "secret", "private", "account", "signing", "encryption"}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def mask_parameters(parameters: Mapping[str, str], secrets: Collection[str] = ()) -> dict[str, str]:
    """Return parameters with asterisks in place of secrets.

    These are values whose name says so, credentials of a known form, passwords in URLs, and
    ``secrets`` in any value. Parameters are no place for secrets, which are stored with the job.

    Examples
    --------
    >>> mask_parameters({"day": "2026-11-27", "db_password": "x1", "max_tokens": "512"})
    {'day': '2026-11-27', 'db_password': '******', 'max_tokens': '512'}
    """
    return {name: _mask(name, value, secrets) for name, value in parameters.items()}


def is_secret_name(name: str) -> bool:
    """Whether the value of a parameter of this name is a secret.

    Examples
    --------
    >>> [is_secret_name(name) for name in ("dbPassword", "API_KEY", "sort_key", "token_count")]
    [True, True, False, False]
    """
    words = [word.lower() for word in _WORD.findall(name)]
    is_key = words[-1:] == ["key"] and not _KEYS.isdisjoint(words[-2:-1])
    return is_key or not _SECRET_WORDS.isdisjoint(words[-1:])


def _mask(name: str, value: str, secrets: Collection[str]) -> str:
    if value and (is_secret_name(name) or detect_credential(value)):
        return MASK
    shown = redact_text(value, secrets) if secrets else value
    return redact_url(shown) if "://" in shown and "\n" not in shown else shown
