"""Small documented helpers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import dask.config

from hyperplane.errors import Fault, check
from hyperplane.jobs import slack
from hyperplane.public_calls import check_call

__all__ = ["SlackHelper", "get_service_url", "is_jhub", "post_message", "post_table"]

_TEMPLATE = "http://{name}.hyperplane-pipelines.svc.cluster.local:8787"


@check_call
def is_jhub() -> bool:
    """Whether this is a session rather than a pipeline job.

    Returns
    -------
    bool
        True unless the variable ``HYPERPLANE_JOB_ID`` names a job.

    Examples
    --------
    >>> is_jhub()
    True
    """
    return os.environ.get("HYPERPLANE_JOB_ID", "__local_test") == "__local_test"


@check_call
def get_service_url(name: str) -> str:
    """The address of a service that runs beside sessions and jobs.

    Parameters
    ----------
    name : str
        Its name.

    Returns
    -------
    str
        What ``hyperplane.services.addresses`` has for the name, or else
        ``hyperplane.services.url`` with the name in it. Nobody is asked whether the service runs.

    Raises
    ------
    RequestError
        When the name cannot be part of an address.

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
    template = str(dask.config.get("hyperplane.services.url", default=_TEMPLATE))
    if "{name}" not in template:
        check([Fault("hyperplane.services.url", repr(template), "a URL with {name} in it")])
    return template.replace("{name}", name)


@check_call
class SlackHelper:
    """Writes to Slack with the token in the variable ``SLACK_TOKEN``.

    Raises
    ------
    RequestError
        When there is no token.
    """

    def __init__(self) -> None:
        self._token = os.environ.get("SLACK_TOKEN", "")
        if not self._token:
            advice = "set it to the token of a bot of your workspace"
            check([Fault("SLACK_TOKEN", "nothing", "a variable with a token", advice)])

    @check_call
    def post_message(self, message: str, channel: str = "") -> None:
        """Send a message.

        Parameters
        ----------
        message : str
            The text, in Slack's own markup.
        channel : str
            ``"#channel"`` or an id; that of ``hyperplane.slack.channel`` when empty.

        Raises
        ------
        RequestError
            When there is no channel.
        SlackError
            When Slack does not take it.
        """
        slack.send_with_token(self._token, message, channel)

    @check_call
    def post_table(self, message_dict: Mapping[str, Any], channel: str = "") -> None:
        """Send a mapping as an aligned table.

        Parameters
        ----------
        message_dict : mapping
            Labels and values, one a line; or, where all values are lists, columns.
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
    """Send a message to Slack through the webhook in the variable ``WEBHOOK_URL``.

    Parameters
    ----------
    message : str
        The text, in Slack's own markup.
    channel : str
        The webhook's own when empty.

    Raises
    ------
    RequestError
        When there is no webhook.
    SlackError
        When the server does not take it.
    """
    slack.send_to_webhook(os.environ.get("WEBHOOK_URL", ""), message, channel)


@check_call
def post_table(message_dict: Mapping[str, Any], channel: str = "") -> None:
    """Send a mapping as an aligned table, through the webhook in ``WEBHOOK_URL``.

    Parameters
    ----------
    message_dict : mapping
        Labels and values, one a line; or, where all values are lists, columns.
    channel : str
        The webhook's own when empty.

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
