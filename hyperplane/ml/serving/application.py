"""The HTTP interface of a model server, with the paths of TensorFlow Serving and Cloud ML."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import HyperplaneError
from hyperplane.core.optional import need
from hyperplane.ml.prediction.rows import describe_refusal
from hyperplane.ml.serving.batching import MAX_WAITING, BatcherClosed, TooManyRequests
from hyperplane.ml.serving.refusal_response import RefusalResponse
from hyperplane.ml.serving.request_body import InvalidBody, make_response, parse_body
from hyperplane.ml.serving.request_ids import Receive, RequestIds, Send, log_failure
from hyperplane.ml.serving.serve_metrics import ServeMetrics
from hyperplane.ml.serving.serve_settings import ServeSettings
from hyperplane.ml.serving.served_models import ModelNotFound, ModelNotLoaded, ServedModels

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

#: Seconds within which the body of a request must arrive.
BODY_SECONDS = 30.0
#: Maximum bytes of the bodies of all requests that are not answered yet.
MAX_BODIES = 256_000_000
_OTHER_METHOD = "this path has another method; predictions are requested with POST"
_NOT_LOADED = "the model cannot be loaded; see the log of the server"
#: Paths without a token, for probes.
_PUBLIC = ("/healthz", "/ready")


class _Refusal(Exception):
    """A response with an error; the reason in the log can have more than the response."""

    def __init__(self, code: int, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.code, self.reason = code, reason or text
        self.content: dict[str, Any] = {"error": text}


@dataclass
class _Answer:
    """Response to a request for predictions, and the labels of its metrics."""

    code: int = 500
    content: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    name: str = ""
    version: str = ""
    body_bytes: int = 0
    reason: str = ""


def create_application(
    settings: ServeSettings,
    models: ServedModels,
    metrics: ServeMetrics,
    on_ready: Callable[[], None],
) -> Any:
    """Return the ASGI application of a server; ``on_ready`` is called when it starts."""
    applications = need("starlette.applications", "serve")
    route = need("starlette.routing", "serve").Route
    handlers = _Handlers(settings, models, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        del app
        task = asyncio.create_task(models.follow_defaults(metrics.registry_errors.inc))
        on_ready()
        yield
        task.cancel()

    model = "/v1/models/{name}"
    version = model + "/versions/{version}"
    application = applications.Starlette(
        routes=[
            route(model + ":predict", handlers.predict, methods=["POST"]),
            route(version + ":predict", handlers.predict, methods=["POST"]),
            route(model, handlers.show_model),
            route(version, handlers.show_model),
            route("/healthz", handlers.show_health),
            route("/ready", handlers.show_health),
            route("/metrics", handlers.show_metrics),
        ],
        exception_handlers={
            need("starlette.exceptions", "serve").HTTPException: handlers.report_http_error,
            Exception: handlers.report_failure,
        },
        lifespan=lifespan,
    )
    application.router.redirect_slashes = False  # a redirect would use the request's Host header
    if settings.token is not None:
        return RequestIds(_TokenCheck(application, settings.token))
    return RequestIds(application)


class _TokenCheck:
    """ASGI application that passes on requests with the token."""

    def __init__(self, application: Any, token: str) -> None:
        self._application, self._token = application, token.encode()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _PUBLIC:
            given = next(
                (value for name, value in scope["headers"] if name == b"authorization"), b""
            )
            scheme, _, token = given.partition(b" ")
            is_bearer = scheme.lower() == b"bearer"  # in any case, as RFC 9110 says
            if not hmac.compare_digest(token.strip(), self._token) or not is_bearer:
                text = (
                    "expected the header Authorization: Bearer TOKEN with the token of the server"
                )
                headers = {"www-authenticate": "Bearer", "connection": "close"}
                refusal = RefusalResponse(_respond(401, {"error": text}, headers))
                await refusal(scope, receive, send)
                return
        await self._application(scope, receive, send)


def _respond(code: int, content: Any, headers: dict[str, str] | None = None) -> Response:
    response: Response = need("starlette.responses", "serve").Response(
        json.dumps(content), code, headers, "application/json"
    )
    return response


class _Handlers:
    """Functions that answer requests."""

    def __init__(
        self, settings: ServeSettings, models: ServedModels, metrics: ServeMetrics
    ) -> None:
        self._settings, self._models, self._metrics = settings, models, metrics
        self._body_bytes = 0

    async def predict(self, request: Request) -> Response | RefusalResponse:
        """Answer ``:predict``."""
        began = time.perf_counter()
        answer = _Answer()
        try:
            await self._predict(request, answer)
        except _Refusal as error:
            answer.code, answer.content, answer.reason = error.code, error.content, error.reason
            if error.code in (408, 413, 415, 503):
                answer.headers["connection"] = "close"  # the body is not read
        except (TooManyRequests, BatcherClosed) as error:
            answer.code, answer.headers["retry-after"] = 503, "1"
            text = f"{MAX_WAITING:,} requests are waiting; try again later"
            if isinstance(error, BatcherClosed):
                text = "this version of the model was unloaded; try again"
            answer.content = {"error": text}
        except asyncio.CancelledError:  # the time limit of the shutdown is exceeded
            answer.code, answer.headers["connection"] = 503, "close"
            answer.content = {"error": "the server is stopping; send the request again"}
        finally:
            self._body_bytes -= answer.body_bytes
            name = answer.name
            self._metrics.requests.labels(name, answer.version, str(answer.code)).inc()
            self._metrics.seconds.labels(name).observe(time.perf_counter() - began)
        if answer.code >= 500:
            log_failure(request, answer.code, answer.reason or answer.content["error"])
        response = _respond(answer.code, answer.content, answer.headers)
        if answer.headers.get("connection") == "close":
            return RefusalResponse(response)
        return response

    async def _predict(self, request: Request, answer: _Answer) -> None:
        """Fill in the answer to a request."""
        found = await self._find(request)
        # The labels of metrics are names of models that exist.
        answer.name, answer.version = found.name, found.version
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise _Refusal(415, "expected a body without compression, and no content-encoding")
        body = await self._read(request, answer)
        try:
            instances = parse_body(body, self._settings.max_instances)
        except InvalidBody as error:
            raise _Refusal(400, str(error)) from error
        with self._metrics.in_progress.labels(found.name).track_inprogress():
            try:
                predictions = await found.batcher.predict(instances)
            except BatcherClosed:
                found = await self._find(request)  # loads it again
                answer.version = found.version
                predictions = await found.batcher.predict(instances)
        answer.code, answer.content = 200, make_response(predictions)
        answer.headers["x-model-version"] = answer.version
        if predictions.errors:
            answer.code = 400
            self._metrics.refused.labels(found.name).inc(len(predictions.errors))

    async def _find(self, request: Request) -> Any:
        parameters = request.path_params
        try:
            return await self._models.get(parameters["name"], parameters.get("version"))
        except ModelNotFound as error:
            raise _Refusal(404, str(error)) from error
        except (HyperplaneError, OSError) as error:
            reason = f"{parameters['name']} cannot be loaded: {error}"
            raise _Refusal(503, _NOT_LOADED, reason) from error
        except ModelNotLoaded as error:
            reason = f"{parameters['name']} could not be loaded some seconds ago"
            raise _Refusal(503, _NOT_LOADED, reason) from error

    async def _read(self, request: Request, answer: _Answer) -> bytes:
        """Return the body, within the limits of sizes and time."""
        most = self._settings.max_body
        with contextlib.suppress(ValueError):
            if int(request.headers.get("content-length", "0")) > most:
                raise _Refusal(413, f"expected a body of at most {most:,} bytes")
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > most:
                        raise _Refusal(413, f"expected a body of at most {most:,} bytes")
                    answer.body_bytes += len(chunk)
                    self._body_bytes += len(chunk)
                    limit = max(MAX_BODIES, most)
                    if self._body_bytes > limit:
                        text = f"the bodies of waiting requests exceed {limit:,} bytes"
                        raise _Refusal(503, f"{text}; try again later")
        except TimeoutError as error:
            text = f"the body did not arrive within {BODY_SECONDS:g} seconds"
            raise _Refusal(408, text) from error
        except need("starlette.requests", "serve").ClientDisconnect as error:
            raise _Refusal(400, "the client closed the connection") from error
        return bytes(body)

    async def show_model(self, request: Request) -> Response:
        """Answer with the versions of a model, as TensorFlow Serving does."""
        name, version = request.path_params["name"], request.path_params.get("version")
        if (version or name).endswith(":predict"):
            return _respond(405, {"error": _OTHER_METHOD}, {"allow": "POST"})
        try:
            versions = await self._models.list_versions(name)
        except ModelNotFound as error:
            return _respond(404, {"error": str(error)})
        except (HyperplaneError, OSError) as error:
            log_failure(request, 503, f"versions of {name} cannot be listed: {error}")
            return _respond(503, {"error": "the registry cannot be read"})
        shown = [each for each in versions if version in (None, each["version"])]
        if not shown:
            known = ", ".join(each["version"] for each in versions)
            text = f"model {name}, version {version} not found; expected one of {known}"
            return _respond(404, {"error": text})
        fine = {"error_code": "OK", "error_message": ""}
        status = [{**each, "state": "AVAILABLE", "status": fine} for each in shown]
        return _respond(200, {"model_version_status": status})

    async def show_health(self, request: Request) -> Response:
        """Answer that the server is running, with its models loaded."""
        del request
        return _respond(200, {"status": "ok"})

    async def show_metrics(self, request: Request) -> Response:
        """Answer with the metrics."""
        del request
        text = await asyncio.to_thread(self._metrics.render)
        kind = "text/plain; version=0.0.4; charset=utf-8"
        response: Response = need("starlette.responses", "serve").Response(
            text, headers={"content-type": kind}
        )
        return response

    async def report_http_error(self, request: Request, error: Any) -> Response:
        """Answer a wrong path or method."""
        del request
        text = {
            404: "expected /v1/models/NAME:predict, /v1/models/NAME, /healthz, /ready or /metrics",
            405: _OTHER_METHOD,
        }
        return _respond(
            error.status_code, {"error": text.get(error.status_code, error.detail)}, error.headers
        )

    async def report_failure(self, request: Request, error: Exception) -> Response:
        """Answer after an unexpected error, which uvicorn writes to the log with its traceback."""
        log_failure(request, 500, describe_refusal(error))
        return _respond(500, {"error": "internal error; see the log of the server"})
