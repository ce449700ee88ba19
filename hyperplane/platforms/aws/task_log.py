"""Logs of containers in CloudWatch."""

from __future__ import annotations

from hyperplane.platforms.aws.errors import AwsRequestError
from hyperplane.platforms.aws.session import AwsSession

#: Error code of a log that does not exist yet.
_NOT_FOUND = "ResourceNotFoundException"


class TaskLog:
    """Reads the log of one container from its beginning; each line once."""

    def __init__(self, session: AwsSession, group: str, stream: str) -> None:
        self._session, self._group, self._stream = session, group, stream
        self._token: str | None = None

    def read_new(self) -> bytes:
        """Return the lines since the last call; empty if there are none. Raises AwsError."""
        lines: list[str] = []
        token = self._token
        while True:
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
                return b""
            lines += [event["message"] for event in answer["events"]]
            before, token = token, answer["nextForwardToken"]
            # At the end of a log the token does not change.
            if token == before or not answer["events"]:
                # Not before: the next call repeats what an error has interrupted.
                self._token = token
                return "".join(f"{line}\n" for line in lines).encode()
