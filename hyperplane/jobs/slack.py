"""Send messages to Slack with a token or a webhook; errors contain neither."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import dask.config
import tenacity

from hyperplane.core.errors import Fault, HyperplaneError, check
from hyperplane.core.public_calls import warn_caller

#: Seconds: the timeout of a request, and the maximum delay before a retry.
TIMEOUT = 10.0
MAX_WAIT = 30.0
#: Maximum number of attempts to send a message.
MAX_ATTEMPTS = 4
#: Maximum characters of a Slack message.
_MAX_TEXT_LENGTH = 40_000
_LOCAL = {"localhost", "127.0.0.1", "::1"}


class SlackError(HyperplaneError, RuntimeError):
    """A message was not delivered."""


def __getattr__(name: str) -> Any:
    if name != "NotSent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_caller("hyperplane.jobs.slack.NotSent is renamed to SlackError", FutureWarning)
    return SlackError


class _RetryableError(Exception):
    """The server may accept the message later; ``after`` is the requested delay in seconds."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuse redirects: they would send the token to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def send_with_token(token: str, text: str, channel: str) -> None:
    """Send a message with a Slack token.

    Parameters
    ----------
    token : str
        The token.
    text : str
        The message in Slack markup.
    channel : str
        ``"#channel"`` or an id; by default ``hyperplane.slack.channel``.

    Raises
    ------
    RequestError
        If the token or the channel is missing, or ``hyperplane.slack.api`` is not a URL.
    SlackError
        If Slack does not accept the message.
    """
    api = str(dask.config.get("hyperplane.slack.api", default="https://slack.com/api"))
    default_channel = dask.config.get("hyperplane.slack.channel", default=None) or ""
    url = f"{api.rstrip('/')}/chat.postMessage"
    faults = [*_url_faults("hyperplane.slack.api", url, shown=True), *_text_faults(text, channel)]
    if not _is_valid_token(token):
        advice = "set the variable SLACK_TOKEN to the token of a bot of your workspace"
        faults.append(Fault("SLACK_TOKEN", _describe_secret(token), "a one-line token", advice))
    target = channel if isinstance(channel, str) and channel else default_channel
    if not target:
        advice = "pass a channel, or set hyperplane.slack.channel"
        faults.append(Fault("channel", "nothing", "'#channel' or a channel id", advice))
    check(faults)
    headers = {"Authorization": f"Bearer {token}"}
    response = _post(url, {"channel": target, "text": _truncate(text)}, headers)
    try:
        reply = json.loads(response)
        ok, why = reply.get("ok") is True, str(reply.get("error", "no reason"))
    except (ValueError, AttributeError):
        ok, why = False, "the response is not from Slack"
    if not ok:
        raise SlackError(
            f"Slack did not accept the message for {target}: {_without_secret(why, token)}"
        )


def send_to_webhook(url: str, text: str, channel: str = "") -> None:
    """Send a message through a webhook.

    Parameters
    ----------
    url : str
        The webhook; its URL is a secret and never shown.
    text : str
        The message in Slack markup.
    channel : str
        By default that of the webhook.

    Raises
    ------
    RequestError
        If there is no webhook, or it is not a URL.
    SlackError
        If the server does not accept the message.
    """
    check([*_url_faults("WEBHOOK_URL", url, shown=False), *_text_faults(text, channel)])
    _post(url, {"text": _truncate(text), **({"channel": channel} if channel else {})}, {})


def _text_faults(text: object, channel: object) -> list[Fault]:
    """Return faults if the message or the channel is not text."""
    faults = []
    if not isinstance(text, str):
        faults.append(Fault("message", repr(text)[:80], "text", "write str(message)"))
    if not isinstance(channel, str):
        faults.append(Fault("channel", repr(channel)[:80], "'#channel' or a channel id"))
    return faults


def format_table(values: Mapping[str, Any]) -> str:
    r"""Format a mapping as an aligned table in a code block.

    Parameters
    ----------
    values : mapping
        Labels and values, one per line; or columns, if all values are lists.

    Raises
    ------
    RequestError
        If it is not a mapping.

    Examples
    --------
    >>> print(format_table({"rows": 1200, "status": "done"}))
    ```
    rows    1200
    status  done
    ```
    >>> print(format_table({"day": ["mon", "tue"], "rows": [9, 1200]}))
    ```
    day  rows
    ---  ----
    mon     9
    tue  1200
    ```
    """
    argument: Any = values
    if not isinstance(argument, Mapping):
        allowed = "a mapping such as {'rows': 1200}"
        check([Fault("message_dict", repr(argument)[:80], allowed)])
    if values and all(isinstance(value, (list, tuple)) for value in values.values()):
        columns = [_format_column(str(name), value) for name, value in values.items()]
        height = max(map(len, columns))
        padded = [[*column, *[" " * len(column[0])] * (height - len(column))] for column in columns]
        lines = ["  ".join(row) for row in zip(*padded, strict=True)]
    else:
        width = max((len(str(name)) for name in values), default=0)
        lines = [f"{name!s:<{width}}  {_format_line(value)}" for name, value in values.items()]
    return "\n".join(["```", *(escape_markup(line.rstrip()) for line in lines), "```"])


def escape_markup(text: str) -> str:
    """Escape text so that Slack sees no markup and no end of a code block.

    Examples
    --------
    >>> escape_markup("a < b & c")
    'a &lt; b &amp; c'
    """
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("```", "'''")


def _format_column(name: str, values: list[Any] | tuple[Any, ...]) -> list[str]:
    cells = [_format_line(value) for value in values]
    width = max(map(len, [name, *cells]))
    right = bool(values) and all(isinstance(value, (int, float)) for value in values)
    rows = [name, "-" * width, *cells]
    return [row.rjust(width) if right else row.ljust(width) for row in rows]


def _format_line(value: Any) -> str:
    return " ".join(str(value).split())


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_LENGTH else text[: _MAX_TEXT_LENGTH - 3] + "..."


def _url_faults(where: str, url: str, *, shown: bool) -> list[Fault]:
    """Return faults of a URL; secrets require encryption or a local server."""
    shown_url = repr(url) if shown else _describe_secret(url)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        is_protected = parts.scheme == "https" or (parts.scheme == "http" and host in _LOCAL)
        has_extras = "@" in parts.netloc or re.search(r"[^\x21-\x7e]", url)
    except ValueError:
        host, is_protected, has_extras = None, False, None
    if host and is_protected and not has_extras:
        return []
    return [Fault(where, shown_url, "a URL that begins with https://")]


def _is_valid_token(token: str) -> bool:
    return bool(re.fullmatch(r"[\x21-\x7e]+", token))


def _describe_secret(secret: str) -> str:
    return "a value not shown" if secret else "nothing"


def _without_secret(text: str, secret: str) -> str:
    return " ".join(text.replace(secret, "...").split())[:200]


def _post(url: str, document: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
    """Post a document with retries, and return the response."""
    request = urllib.request.Request(  # noqa: S310 - the caller checks the URL
        url,
        data=json.dumps(document).encode(),
        headers={"Content-Type": "application/json; charset=utf-8", **headers},
    )
    host = urlsplit(url).hostname
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(_RetryableError),
        wait=_retry_seconds,
        stop=tenacity.stop_after_attempt(MAX_ATTEMPTS),
        reraise=True,
    )
    try:
        return retrying(_post_once, request)
    except _RetryableError as error:
        raise SlackError(
            f"{host} did not accept the message in {MAX_ATTEMPTS} attempts: {error}"
        ) from None
    except _PermanentError as error:
        raise SlackError(f"{host} did not accept the message: {error}") from None


class _PermanentError(Exception):
    """The server will not accept the message later either."""


def _retry_seconds(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    if isinstance(error, _RetryableError) and error.after is not None:
        return min(error.after, MAX_WAIT)
    doubled = tenacity.wait_exponential(multiplier=0.5, max=MAX_WAIT / 2)
    return (doubled + tenacity.wait_random(0, 1))(state)


def _post_once(request: urllib.request.Request) -> bytes:
    # Errors of urllib contain the URL, which may be a secret: none is chained.
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=TIMEOUT) as response:
            return bytes(response.read(1 << 20))
    except urllib.error.HTTPError as error:
        code, after = error.code, error.headers.get("Retry-After", "")
        error.close()
        if code == 429 or code >= 500:
            raise _RetryableError(
                f"HTTP {code}", float(after) if after.isdecimal() else None
            ) from None
        advice = ", and redirects are not followed" if 300 <= code < 400 else ""
        raise _PermanentError(f"HTTP {code}{advice}") from None
    except TimeoutError:
        # Not retried: the message may have arrived, and would be sent twice.
        raise _PermanentError(
            f"no response in {TIMEOUT:g} s; the message may have arrived"
        ) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _RetryableError(f"no connection in {TIMEOUT:g} s") from None
        raise _RetryableError(f"no connection ({type(error.reason).__name__})") from None
    except (OSError, http.client.HTTPException) as error:
        raise _RetryableError(f"the connection broke ({type(error).__name__})") from None
