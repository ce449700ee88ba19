"""Send messages to Slack with a token or a webhook; errors contain neither."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import dask.config

from hyperplane.core.errors import Fault, HyperplaneError, check
from hyperplane.core.public_calls import warn_caller
from hyperplane.jobs.json_posts import PostError, describe_secret, find_url_faults, post

#: Maximum characters of a Slack message.
_MAX_TEXT_LENGTH = 40_000


class SlackError(HyperplaneError, RuntimeError):
    """A message was not delivered."""


def __getattr__(name: str) -> Any:
    if name != "NotSent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_caller("hyperplane.jobs.slack.NotSent is renamed to SlackError", FutureWarning)
    return SlackError


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
    faults = [
        *find_url_faults("hyperplane.slack.api", url, shown=True),
        *_text_faults(text, channel),
    ]
    if not _is_valid_token(token):
        advice = "set the variable SLACK_TOKEN to the token of a bot of your workspace"
        faults.append(Fault("SLACK_TOKEN", describe_secret(token), "a one-line token", advice))
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
    check([*find_url_faults("WEBHOOK_URL", url, shown=False), *_text_faults(text, channel)])
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


def _is_valid_token(token: str) -> bool:
    return bool(re.fullmatch(r"[\x21-\x7e]+", token))


def _without_secret(text: str, secret: str) -> str:
    return " ".join(text.replace(secret, "...").split())[:200]


def _post(url: str, document: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
    try:
        return post(url, document, headers)
    except PostError as error:
        raise SlackError(str(error)) from None
