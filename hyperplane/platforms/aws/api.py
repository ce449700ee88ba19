"""Base of the requests to each service of Amazon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from hyperplane.platforms.aws.session import AwsSession, read_value


class AwsApi:
    """Requests to a service; each is sent once, and raises AwsError if it fails."""

    #: Name of the service in boto3.
    service: ClassVar[str]

    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def account(self) -> str:
        """Return the id of the account of the credentials."""
        return str(self._session.call("sts", "get_caller_identity")["Account"])

    def send(self, operation: str, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        return self._session.call(self.service, operation, **request)

    def read(self, key: str, operation: str, **request: Any) -> Any:
        """Return one value of the answer to a request; raise an error if it is incomplete."""
        return read_value(self.send(operation, **request), key, f"{self.service} {operation}")

    def pages(self, key: str, token: str, operation: str, **request: Any) -> Iterator[list[Any]]:
        """Yield a list of each page of an answer; ``token`` is the name of that of a page."""
        while True:
            answer = self.send(operation, **request)
            yield read_value(answer, key, f"{self.service} {operation}")
            if not answer.get(token):
                return
            request = {**request, token: answer[token]}
