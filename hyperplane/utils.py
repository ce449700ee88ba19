"""Documented helpers: job detection, service addresses and Slack messages."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import dask.config

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.jobs import slack

__all__ = ["SlackHelper", "get_service_url", "is_jhub", "post_message", "post_table"]

_TEMPLATE = "http://{name}.hyperplane-pipelines.svc.cluster.local:8787"


@check_call
def is_jhub() -> bool:
    """Return whether the current process runs in a session, not in a pipeline job.

    Returns
    -------
    bool
        True unless the environment variable ``HYPERPLANE_JOB_ID`` contains the id of a job.

    Examples
    --------
    >>> is_jhub()
    True
    """
    return os.environ.get("HYPERPLANE_JOB_ID", "__local_test") == "__local_test"


@check_call
def get_service_url(name: str) -> str:
    """Return the address of a service that sessions and jobs use.

    Parameters
    ----------
    name : str
        Name of the service.

    Returns
    -------
    str
        The entry of ``hyperplane.services.addresses`` for the name; or the URL of the server of
        this name that this user runs on this machine with ``hyperplane serve``; or else
        ``hyperplane.services.url`` with the name inserted, where the service may not be running.

    Raises
    ------
    RequestError
        If the name contains characters that an address cannot contain, or
        ``hyperplane.services.url`` does not contain ``{name}``.

    Examples
    --------
    >>> get_service_url("model-inference")
    'http://model-inference.hyperplane-pipelines.svc.cluster.local:8787'
    """
    if not (
        isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", name)
    ):
        allowed = "letters, digits and . _ -, with a letter or digit at both ends"
        check([Fault("name", repr(name)[:80], allowed)])
    known = dask.config.get("hyperplane.services.addresses", default=None) or {}
    if isinstance(known, Mapping) and name in known:
        return str(known[name])
    from hyperplane.clusters.service_records import find_service

    if (running := find_service(name)) is not None:
        return running
    template = str(dask.config.get("hyperplane.services.url", default=_TEMPLATE))
    if "{name}" not in template:
        check([Fault("hyperplane.services.url", repr(template), "a URL with {name} in it")])
    return template.replace("{name}", name)


@check_call
class SlackHelper:
    """Sends Slack messages with the token in the environment variable ``SLACK_TOKEN``.

    Raises
    ------
    RequestError
        If the variable is not set.
    """

    def __init__(self) -> None:
        self._token = os.environ.get("SLACK_TOKEN", "")
        if not self._token:
            advice = "set the environment variable to the token of a bot of your workspace"
            check([Fault("SLACK_TOKEN", "nothing", "a Slack token", advice)])

    @check_call
    def post_message(self, message: str, channel: str = "") -> None:
        """Send a message.

        Parameters
        ----------
        message : str
            Text in Slack's markup.
        channel : str
            ``"#channel"`` or a channel id; by default that of ``hyperplane.slack.channel``.

        Raises
        ------
        RequestError
            If there is no channel.
        SlackError
            If Slack refuses the message or cannot be reached.
        """
        slack.send_with_token(self._token, message, channel)

    @check_call
    def post_table(self, message_dict: Mapping[str, Any], channel: str = "") -> None:
        """Send a mapping as an aligned table.

        Parameters
        ----------
        message_dict : mapping
            Labels and values, one per row; or, if all values are lists, columns.
        channel : str
            As for :meth:`post_message`.

        Raises
        ------
        RequestError, SlackError
            As for :meth:`post_message`.
        """
        slack.send_with_token(self._token, slack.format_table(message_dict), channel)


@check_call
def post_message(message: str, channel: str = "") -> None:
    """Send a message to Slack through the webhook in the environment variable ``WEBHOOK_URL``.

    Parameters
    ----------
    message : str
        Text in Slack's markup.
    channel : str
        ``"#channel"``; by default the channel of the webhook.

    Raises
    ------
    RequestError
        If the variable is not set.
    SlackError
        If the server refuses the message or cannot be reached.
    """
    slack.send_to_webhook(os.environ.get("WEBHOOK_URL", ""), message, channel)


@check_call
def post_table(message_dict: Mapping[str, Any], channel: str = "") -> None:
    """Send a mapping as an aligned table through the webhook in ``WEBHOOK_URL``.

    Parameters
    ----------
    message_dict : mapping
        Labels and values, one per row; or, if all values are lists, columns.
    channel : str
        ``"#channel"``; by default the channel of the webhook.

    Raises
    ------
    RequestError, SlackError
        As for :func:`post_message`.
    """
    slack.send_to_webhook(
        os.environ.get("WEBHOOK_URL", ""), slack.format_table(message_dict), channel
    )


def __dir__() -> list[str]:
    return list(__all__)
