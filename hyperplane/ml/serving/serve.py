"""Public function that serves models over HTTP from a child process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from hyperplane.core.optional import need
from hyperplane.core.public_calls import check_call, warn_caller
from hyperplane.ml.serving.serve_settings import make_settings
from hyperplane.ml.serving.server_process import END_SECONDS, ServerProcess


class ModelServer:
    """A running server, which is a child process; it ends with this process.

    Attributes
    ----------
    url : str
        Start of its URLs, such as ``http://127.0.0.1:8080``.
    """

    def __init__(self, process: ServerProcess, url: str) -> None:
        self._process, self.url = process, url

    def __repr__(self) -> str:
        return f"<ModelServer {self.url}>"

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Answer the requests that it has, and end the server; repeated calls do nothing."""
        self._process.wait(END_SECONDS + 5)


@check_call(outcome="nothing is served")
def serve(
    model: str | os.PathLike[str] | None = None,
    *,
    registry: str | os.PathLike[str] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    batch_size: int = 64,
    batch_wait_ms: float = 0,
    max_body: int | str = "10MB",
    max_instances: int = 1000,
    workers: int = 1,
    trusted: bool = False,
    name: str | None = None,
    certificate: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ModelServer:
    """Serve saved models over HTTP, with the forms of TensorFlow Serving and Cloud ML.

    Parameters
    ----------
    model : str or path, optional
        File or folder of a saved model, or a model of a registry: ``REGISTRY/NAME``, whose default
        version is followed, or ``REGISTRY/NAME/VERSION``. With ``registry`` the name of a model.
    registry : str or path, optional
        Registry of models; all of its models are served if ``model`` is omitted.
    host : str
        Address to listen on. One that other machines can reach requires a token; without a
        certificate there is a warning.
    port : int
        Port; 0 chooses a free one.
    token : str, optional
        Token that requests must have; by default the value of the variable
        ``HYPERPLANE_SERVE_TOKEN``.
    batch_size : int
        Maximum number of instances in one call of the model. Instances of requests that arrive
        while the model predicts are predicted together.
    batch_wait_ms : float
        Milliseconds that a request also waits for others if its batch is not full.
    max_body : int or str
        Maximum bytes of the body of a request, such as ``"10MB"``.
    max_instances : int
        Maximum number of instances of a request.
    workers : int
        Number of processes, each with the models.
    trusted : bool
        Whether to load a model that can run code of its author.
    name : str, optional
        Name for :func:`hyperplane.utils.get_service_url` on this machine; by default that of the
        only model.
    certificate, key : str or path, optional
        Files in PEM format of the certificate of the server, with its chain, and of its key; they
        encrypt the connections (HTTPS). Omit ``key`` if the file of the certificate has the key.
    storage_options : mapping, optional
        Options of the file system.

    Returns
    -------
    ModelServer
        The server, which is ready; use it in a ``with`` block, or call its ``close``.

    Raises
    ------
    RequestError
        With every fault, such as a port that is in use.
    MissingPackage
        If the extra ``serve`` is not installed.
    """
    settings = make_settings(
        model,
        registry=registry,
        host=host,
        port=port,
        token=token,
        batch_size=batch_size,
        batch_wait_ms=batch_wait_ms,
        max_body=max_body,
        max_instances=max_instances,
        workers=workers,
        trusted=trusted,
        name=name,
        storage_options=storage_options,
        certificate=certificate,
        key=key,
    )
    if settings.warning:
        warn_caller(settings.warning)
    need("starlette", "serve")
    need("uvicorn", "serve")
    need("prometheus_client", "serve")
    process = ServerProcess(settings)
    try:
        url, _, _ = process.wait_until_ready()
    except BaseException:
        process.wait(0)
        raise
    return ModelServer(process, url)
