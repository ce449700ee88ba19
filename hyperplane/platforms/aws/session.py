"""Requests to Amazon Web Services with one set of credentials."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from hyperplane.platforms.aws.environment_session import open_session
from hyperplane.platforms.aws.errors import AwsConnectionError, AwsCredentialsError, translate_error

#: Seconds for a connection, and for an answer.
CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0
_CONNECTIONS = 16
#: Service -> its name in the variables with addresses, unless it is that of the client.
_ENDPOINT_NAMES = {"stepfunctions": "SFN"}


def read_value(answer: Mapping[str, Any], key: str, action: str) -> Any:
    """Return a value of an answer; raise AwsConnectionError if the answer is incomplete."""
    value = answer.get(key, "")
    if value == "":  # such as the page of a proxy
        raise AwsConnectionError(f"the answer of Amazon has no {key} ({action})")
    return value


class AwsSession:
    """Clients of services in one region; may be used by several threads.

    Parameters
    ----------
    region : str or None
        Region of the services; that of the environment or the profile if None.
    profile : str or None
        Profile of the AWS configuration files.
    environment : mapping of str to str
        Environment with ``AWS_...`` variables, such as that of a submission. Those of this
        process are not used.
    """

    def __init__(
        self, region: str | None, profile: str | None, environment: Mapping[str, str]
    ) -> None:
        self._profile = profile
        regions = map(environment.get, ("AWS_REGION", "AWS_DEFAULT_REGION"))
        self._region = region or next(filter(None, regions), None)
        self._variables = {
            name: text for name, text in environment.items() if name.startswith("AWS_")
        }
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[str, Any] = {}

    def region(self) -> str | None:
        """Return the region in use; None if none is set."""
        with self._lock:
            return self._open_session("read the region").region_name  # type: ignore[no-any-return]

    def call(self, service: str, operation: str, **request: Any) -> dict[str, Any]:
        """Send one request, once.

        Retries are left to the caller, because a repeated request may submit a job twice.

        Raises
        ------
        AwsError
            If it fails. After an error of the credentials, the next call loads them again.
        """
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        action = f"{service} {operation}"
        client = self._client(service, action)
        try:
            answer: dict[str, Any] = getattr(client, operation)(**request)
        except (BotoCoreError, ClientError, ResponseParserError) as error:
            translated = translate_error(error, action)
            if isinstance(translated, AwsCredentialsError):
                self._forget(client)
            raise translated from error
        return answer

    def _client(self, service: str, action: str) -> Any:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        with self._lock:
            if service not in self._clients:
                name = _ENDPOINT_NAMES.get(service, service.upper().replace("-", "_"))
                endpoint = self._variables.get(
                    f"AWS_ENDPOINT_URL_{name}", self._variables.get("AWS_ENDPOINT_URL")
                )
                # Otherwise botocore reads the endpoint from the environment of this process.
                is_foreign = endpoint is None and any(
                    name.startswith("AWS_ENDPOINT_URL") for name in os.environ
                )
                options = Config(
                    connect_timeout=CONNECT_SECONDS,
                    read_timeout=READ_SECONDS,
                    max_pool_connections=_CONNECTIONS,
                    retries={"total_max_attempts": 1},
                    **({"ignore_configured_endpoint_urls": True} if is_foreign else {}),
                )
                session = self._open_session(action)
                try:
                    self._clients[service] = session.client(
                        service, config=options, endpoint_url=endpoint
                    )
                except (BotoCoreError, ValueError) as error:
                    raise translate_error(error, action) from error
            return self._clients[service]

    def _open_session(self, action: str) -> Any:
        from botocore.exceptions import BotoCoreError

        if self._session is None:
            try:
                self._session = open_session(self._variables, self._profile, self._region)
            except (BotoCoreError, ValueError) as error:
                raise translate_error(error, action) from error
        return self._session

    def _forget(self, client: Any) -> None:
        """Drop the clients whose credentials failed, unless another thread has done it."""
        with self._lock:
            if client in self._clients.values():
                self._session, self._clients = None, {}
