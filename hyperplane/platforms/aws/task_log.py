"""Logs of containers in CloudWatch."""

from __future__ import annotations

from typing import NamedTuple

from hyperplane.platforms.aws.errors import AwsRequestError
from hyperplane.platforms.aws.session import AwsSession, read_value

#: Error code of a log that does not exist yet.
_NOT_FOUND = "ResourceNotFoundException"


class LogPage(NamedTuple):
    """Some lines of a log, which may be none.

    Parameters
    ----------
    text : bytes
        The lines.
    token : str
        Position after them.
    is_last : bool
        Whether there were no further lines at the time of the request. A page without lines may
        be followed by others.
    """

    text: bytes
    token: str
    is_last: bool


class TaskLog:
    """Reads the log of one container, page by page."""

    def __init__(self, session: AwsSession, group: str, stream: str) -> None:
        self._session, self._group, self._stream = session, group, stream

    def read_page(self, token: str | None) -> LogPage | None:
        """Return the lines after a position, the beginning if it is None, with one request.

        None if the log does not exist yet. Raises AwsError.
        """
        position = {} if token is None else {"nextToken": token}
        try:
            answer = self._session.call(
                "logs",
                "get_log_events",
                logGroupName=self._group,
                logStreamName=self._stream,
                startFromHead=True,
                **position,
            )
        except AwsRequestError as error:
            if error.code != _NOT_FOUND:
                raise
            return None
        events, after = (
            read_value(answer, key, "logs get_log_events") for key in ("events", "nextForwardToken")
        )
        text = "".join(f"{event['message']}\n" for event in events).encode()
        # At the end of a log the token does not change.
        return LogPage(text, after, after == token)
