"""Requests to an API server: time limits, refusals, and events that a user may not list."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import kr8s
import pytest

from hyperplane.platforms.kubernetes.api import KubernetesApi, run_within, translate_errors
from hyperplane.platforms.kubernetes.errors import KubernetesError, ObjectNotFound, RequestRefused


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "refuses the login"),
        (403, "not allowed to create daskclusters in namespace 'lab'.*rbac.yaml"),
        (409, "Use another name"),
        (422, "refuses the manifest"),
        (500, "answered 500"),
    ],
)
def test_what_the_api_server_refuses(status: int, words: str) -> None:
    answer = httpx.Response(status, request=httpx.Request("POST", "https://api"))
    with (
        pytest.raises(RequestRefused, match=words) as caught,
        translate_errors("create daskclusters", "lab"),
    ):
        raise kr8s.ServerError('User "a" cannot\n do it', response=answer)
    assert 'User "a" cannot do it' in str(caught.value)
    assert isinstance(caught.value.__cause__, kr8s.ServerError)


def test_a_missing_object_is_not_found() -> None:
    answer = httpx.Response(404, request=httpx.Request("GET", "https://api"))
    with pytest.raises(ObjectNotFound, match="not found"), translate_errors("get pods", "lab"):
        raise kr8s.ServerError("not found", response=answer)


@pytest.mark.parametrize(
    ("status", "words", "expected"),
    [
        (429, "too many requests", True),
        (503, "etcd is away", True),
        (409, "Operation cannot be fulfilled on resourcequotas", True),
        (409, 'jobs "n" already exists', False),
        (403, "exceeded quota: jobs", True),
        (403, "forbidden", False),
        (422, "invalid", False),
    ],
)
def test_refusals_that_may_be_temporary(status: int, words: str, expected: bool) -> None:
    error = RequestRefused(words, status)
    assert error.is_retryable() is expected
    assert error.name_exists() is ("already exists" in words)
    again = pickle.loads(pickle.dumps(error))
    assert (again.status, str(again), again.platform) == (status, words, "kubernetes")


def test_a_cancellation_that_coincides_with_the_end_is_not_lost() -> None:
    async def main() -> None:
        work = asyncio.get_running_loop().create_future()

        async def wait() -> Any:
            return await work

        outer = asyncio.create_task(run_within(5, wait()))
        await asyncio.sleep(0.01)
        work.set_result(1)
        outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer

    asyncio.run(main())


def connected(respond: Callable[..., Any]) -> KubernetesApi:
    """Return an API object whose requests a function answers."""

    @asynccontextmanager
    async def call_api(method: str, **request: Any) -> AsyncIterator[Any]:
        yield await respond(method, **request)

    api = KubernetesApi("lab")
    api.kr8s = SimpleNamespace(call_api=call_api)
    return api


def test_every_request_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def respond(method: str, **request: Any) -> Any:
        await asyncio.Event().wait()

    api = connected(respond)
    monkeypatch.setattr(api, "_request_seconds", 0.01)
    for request in (
        lambda: api.list("pods"),
        lambda: api.get("pods", "a"),
        lambda: api.create("pods", {}),
        lambda: api.delete("pods", "a"),
        lambda: api.read_log("a", "worker"),
    ):
        with pytest.raises(KubernetesError, match=r"did not respond in 0\.01 s") as caught:
            asyncio.run(request())
        assert not isinstance(caught.value, RequestRefused), "it may respond later"


def test_requests_name_the_object_the_namespace_and_the_selectors() -> None:
    seen = []

    async def respond(method: str, **request: Any) -> Any:
        seen.append((method, request))
        answer = SimpleNamespace(json=lambda: {"items": [{"a": 1}]}, content=b"its log\n")
        answer.headers = {"Date": "Thu, 01 Jan 1970 00:01:40 GMT"} if len(seen) == 1 else {}
        return answer

    async def main() -> None:
        api = connected(respond)
        assert await api.list("jobs", "batch/v1", labels="a=b") == [{"a": 1}]
        assert api.answered_at == 100
        await api.delete("jobs", "n", "batch/v1")
        assert api.answered_at is None
        assert await api.read_log("n-x", "step", previous=True, lines=5) == b"its log\n"

    asyncio.run(main())
    lists, deletes, reads = seen
    where = {"namespace": "lab", "version": "batch/v1"}
    assert lists == ("GET", {**where, "url": "jobs", "params": {"labelSelector": "a=b"}})
    background = '{"propagationPolicy": "Background"}'
    assert deletes == ("DELETE", {**where, "url": "jobs/n", "content": background})
    params = {"container": "step", "previous": "true", "tailLines": 5}
    assert reads[1]["params"] == params
    assert reads[1]["url"] == "pods/n-x/log"


def test_a_user_who_may_not_list_events_is_refused_once() -> None:
    statuses = [500, 403]
    asked = []

    async def respond(method: str, **request: Any) -> Any:
        asked.append(request["params"])
        answer = httpx.Response(statuses.pop(0), request=httpx.Request("GET", "https://api"))
        raise kr8s.ServerError("no", response=answer)

    async def main() -> list[Any]:
        api = connected(respond)
        return [await api.list_warnings() for _ in range(4)]

    assert asyncio.run(main()) == [[]] * 4
    assert asked == [{"fieldSelector": "type=Warning"}] * 2, "an overload is not a refusal"


def test_a_login_has_its_own_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection:
        auth, namespace, _session = SimpleNamespace(active_context="n"), "lab", None

    async def log_in() -> Connection:
        await asyncio.sleep(0.05)
        return Connection()

    monkeypatch.setattr(kr8s.asyncio, "api", lambda **options: log_in())
    with pytest.raises(KubernetesError, match=r"did not respond in 0\.02 s"):
        asyncio.run(KubernetesApi(None, login_seconds=0.02).connect())

    async def main() -> None:
        api = KubernetesApi(None, request_seconds=0.01)
        await api.connect()
        assert api.namespace == "lab"
        await api.close()

    asyncio.run(main())
