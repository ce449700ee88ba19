"""Requests to Google Cloud with one set of credentials."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from hyperplane.platforms.gcp.credentials import load_credentials
from hyperplane.platforms.gcp.errors import (
    GcpConnectionError,
    GcpCredentialsError,
    GcpRequestError,
    answer_error,
    credentials_error,
    unreadable_answer,
)

#: Extra that installs the client.
EXTRA = "gcp"
#: Seconds for a connection, and for an answer.
CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0
_CONNECTIONS = 16
#: Lowest status of an answer that is not a result.
_FIRST_ERROR = 300
#: Service -> version of its interface.
_VERSIONS = {
    "aiplatform": "v1",
    "artifactregistry": "v1",
    "cloudresourcemanager": "v3",
    "iam": "v1",
    "logging": "v2",
    "run": "v2",
    "storage": "v1",
}
#: Services with a server in each region.
_REGIONAL = ("aiplatform", "run")
#: Prefix of the variables of gcloud with other addresses of services.
_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_"
_PROJECT = "GOOGLE_CLOUD_PROJECT"

Object = dict[str, Any]


class GcpSession:
    """Services in one project and region; may be used by several threads.

    Parameters
    ----------
    project : str or None
        Project of the services; that of ``GOOGLE_CLOUD_PROJECT`` or the credentials if None.
    region : str or None
        Region of the jobs.
    environment : mapping of str to str
        Environment with the variables of the credentials, such as that of a submission. Those of
        this process are not used.
    """

    def __init__(
        self, project: str | None, region: str | None, environment: Mapping[str, str]
    ) -> None:
        self.region = region
        self._project = project or environment.get(_PROJECT) or None
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._transport: _Transport | None = None

    def project(self) -> str:
        """Return the id of the project; raise GcpCredentialsError if nothing names it."""
        if self._project is None:
            self._open("find the project")
        if self._project is None:
            text = f"there is no project: set the option project, or {_PROJECT}"
            raise GcpCredentialsError(text)
        return self._project

    def identity(self) -> str:
        """Return the e-mail address of the credentials; empty if they do not have one."""
        credentials = self._open("read the credentials").credentials
        names = ("service_account_email", "account")
        found = (getattr(credentials, name, None) for name in names)
        return next((str(each) for each in found if each and "@" in str(each)), "")

    def location(self) -> str:
        """Return the name of project and region; raise GcpCredentialsError without a project."""
        return f"projects/{self.project()}/locations/{self.region}"

    def call(self, service: str, operation: str, **request: Any) -> Any:
        """Send one request, once.

        Retries are left to the caller, because a repeated request may submit a job twice.

        Parameters
        ----------
        service : str
            Name of the service, such as ``"aiplatform"``.
        operation : str
            Path of its method, such as ``"projects.locations.customJobs.create"``.
        **request
            Parameters of the method.

        Raises
        ------
        GcpError
            If it fails. After an error of the credentials, the next call loads them again.
        """
        from googleapiclient.errors import Error

        *resources, method = operation.split(".")
        action = f"{service} {'.'.join([*resources[-1:], method])}"
        transport = self._open(action)
        resource = self._resource((service, *resources), transport)
        try:
            built = getattr(resource, method)(**request)
        except (Error, TypeError) as error:
            text = f"the client refuses the request ({action}): {error}"
            raise GcpRequestError(text) from error
        try:
            # Not built.execute(), which logs each refusal as a warning.
            answer, content = transport.request(built.uri, built.method, built.body, built.headers)
            if answer.status >= _FIRST_ERROR:
                raise answer_error(answer.status, content, action)
            return built.postproc(answer, content)
        except GcpCredentialsError:
            self._forget(transport)
            raise
        except ValueError as error:  # such as the page of a proxy
            raise unreadable_answer(action, error) from error

    def _open(self, action: str) -> _Transport:
        from google.auth.exceptions import GoogleAuthError

        with self._lock:
            if self._transport is None:
                try:
                    credentials, project = load_credentials(self._environment)
                except (GoogleAuthError, OSError, ValueError) as error:
                    raise credentials_error(action, str(error)) from error
                self._project = self._project or project
                self._transport = _Transport(credentials)
            return self._transport

    def _resource(self, path: tuple[str, ...], transport: _Transport) -> Any:
        """Return a resource of a service, such as ("aiplatform", "projects", "locations").

        It is kept, because the client creates a class for each resource of each request otherwise,
        which takes some milliseconds.
        """
        with self._lock:
            built = transport.resources
            if path[:1] not in built:
                built[path[:1]] = self._build_service(path[0], transport)
            for length in range(2, len(path) + 1):
                if path[:length] not in built:
                    built[path[:length]] = getattr(built[path[: length - 1]], path[length - 1])()
            return built[path]

    def _build_service(self, name: str, transport: _Transport) -> Any:
        """Return a service, built from the description that the client has."""
        from googleapiclient import discovery

        document = describe_service(name)
        root = self._environment.get(_ENDPOINT + name.upper())
        if root is None and name in _REGIONAL:
            root = f"https://{self.region}-{name}.googleapis.com/"
        if root is not None:
            root = root.rstrip("/") + "/"
            document = {**document, "rootUrl": root, "baseUrl": root}
            document["baseUrl"] += document["servicePath"]
        return discovery.build_from_document(document, http=transport)

    def _forget(self, transport: _Transport) -> None:
        """Drop the credentials that failed, unless another thread has done it."""
        with self._lock:
            if self._transport is transport:
                self._transport = None


@lru_cache
def describe_service(name: str) -> Object:
    """Return the discovery document of a service that the installed client has."""
    from googleapiclient import discovery_cache

    text = discovery_cache.get_static_doc(name, _VERSIONS[name])
    document: Object = json.loads(text)
    return document


class _HttpAnswer(dict[str, str]):
    """Headers of an answer, with its status, in the form of httplib2."""

    def __init__(self, headers: Mapping[str, str], *, status: int, reason: str) -> None:
        super().__init__(headers)
        self.status, self.reason = status, reason


class _Transport:
    """Sends requests of the client through the session of google-auth.

    httplib2, which the client uses otherwise, sends a request again if the server closes the
    connection without an answer, also one that creates a job, and cannot be used by threads.
    """

    def __init__(self, credentials: Any) -> None:
        from google.auth.transport.requests import AuthorizedSession
        from requests.adapters import HTTPAdapter

        self.credentials = credentials
        #: Services whose requests it sends and their resources, by path.
        self.resources: dict[tuple[str, ...], Any] = {}
        self._session = AuthorizedSession(credentials)
        for scheme in ("http://", "https://"):
            self._session.mount(
                scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS, pool_connections=_CONNECTIONS)
            )

    def request(
        self,
        uri: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[_HttpAnswer, bytes]:
        """Send a request once; return the answer as httplib2 does. Raises GcpError."""
        from google.auth.exceptions import GoogleAuthError, TransportError
        from requests.exceptions import RequestException

        try:
            answer = self._session.request(
                method,
                uri,
                data=body.encode() if isinstance(body, str) else body,
                headers=dict(headers or {}),
                timeout=(CONNECT_SECONDS, READ_SECONDS),
                allow_redirects=False,
            )
        except (RequestException, TransportError) as error:
            # TransportError: the server that issues tokens does not answer.
            text = f"Google does not answer ({method} {uri.partition('?')[0]}): {error}"
            raise GcpConnectionError(text) from error
        except GoogleAuthError as error:
            raise credentials_error(f"{method} {uri.partition('?')[0]}", str(error)) from error
        headers = {name.lower(): text for name, text in answer.headers.items()}
        return _HttpAnswer(headers, status=answer.status_code, reason=answer.reason), answer.content
