"""Requests to an API server that refuses, does not respond, or loses responses."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace

import pytest

from hyperplane.errors import EngineError, StartFailed
from hyperplane.jobs.runners.kubernetes import watcher as kubernetes_watcher
from hyperplane.jobs.runners.kubernetes.watcher import JobWatcher
from hyperplane.platforms.kubernetes.api import ObjectNotFound
from hyperplane.spec.settings import KubernetesJobSettings

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "n"}}


def refusal(status, words="no"):
    error = StartFailed("kubernetes", words)
    error.__cause__ = Exception()
    error.__cause__.response = SimpleNamespace(status_code=status)
    return error


class Server:
    """An API server that gives these responses first, and then serves requests."""

    def __init__(self, **answers):
        self._answers, self.asked, self.there = answers, [], {}

    def _next(self, verb, kind, *more):
        self.asked.append((verb, kind, *more))
        answers = self._answers.get(verb)
        if answers and isinstance(answer := answers.pop(0), Exception):
            raise answer

    async def create(self, kind, content, version):
        name = content["metadata"]["name"]
        if (kind, name) in self.there:
            raise refusal(409, f'{kind} "{name}" already exists')
        found = {**content, "metadata": {**content["metadata"], "uid": "u"}}
        if self._answers.get("lost"):
            self._answers["lost"].pop()
            self.there[kind, name] = found
            raise EngineError("kubernetes", "the answer was lost")
        self._next("create", kind)
        self.there[kind, name] = found
        return found

    async def get(self, kind, name, version="v1"):
        self._next("get", kind)
        return self.there[kind, name]

    async def list(self, kind, version="v1", *, labels="", fields=""):
        self._next(f"list {kind}", kind)
        return [one for (sort, _), one in self.there.items() if sort == kind]

    async def delete(self, kind, name, version):
        self._next("delete", kind)
        if (kind, name) not in self.there:
            raise ObjectNotFound("kubernetes", "no such job")
        del self.there[kind, name]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    pause = asyncio.sleep
    monkeypatch.setattr(kubernetes_watcher.asyncio, "sleep", lambda seconds: pause(0))


def watching(**answers):
    watcher = JobWatcher(KubernetesJobSettings())
    watcher._connected = Server(**answers)
    return watcher, watcher._connected


def owned(job):
    return {"metadata": {"name": "n"}, "owner": job["metadata"]["uid"]}


def test_what_may_pass_is_asked_for_again():
    busy = [refusal(503), refusal(429), refusal(409, "the quota was changed"), None, refusal(500)]
    watcher, server = watching(create=busy)
    asyncio.run(watcher.create(JOB, owned))
    assert server.there["secrets", "n"]["owner"] == "u"
    assert [kind for _, kind, *_ in server.asked if kind == "jobs"].count("jobs") >= 4


def test_a_lost_answer_makes_no_second_job():
    watcher, server = watching(lost=[1])
    asyncio.run(watcher.create(JOB, lambda job: None))
    assert list(server.there) == [("jobs", "n")]


def test_a_refusal_is_reported_at_once():
    watcher, server = watching(create=[refusal(403, "you may not create jobs")])
    with pytest.raises(PermissionError, match="you may not create jobs"):
        asyncio.run(watcher.create(JOB, owned))
    assert len(server.asked) == 1


def test_a_server_that_is_away_too_long_may_have_it_or_not(monkeypatch):
    monkeypatch.setattr(kubernetes_watcher, "CREATE_SECONDS", -1)
    watcher, _ = watching(create=[EngineError("kubernetes", "no route")])
    with pytest.raises(OSError, match="no route") as caught:
        asyncio.run(watcher.create(JOB, owned))
    assert caught.value.errno == errno.EAGAIN


def test_each_job_has_its_secret_before_the_next_job_is_created():
    watcher, server = watching()

    async def many():
        jobs = [{**JOB, "metadata": {"name": str(number)}} for number in range(40)]
        await asyncio.gather(
            *(
                watcher.create(job, lambda made: {"metadata": {"name": made["metadata"]["name"]}})
                for job in jobs
            )
        )

    asyncio.run(many())
    kinds = [kind for _, kind in server.asked]
    behind = [kinds[:at].count("jobs") - kinds[:at].count("secrets") for at in range(len(kinds))]
    assert max(behind) <= kubernetes_watcher.MAX_CONCURRENT_REQUESTS


def test_no_response_is_no_end_and_is_reported():
    watcher, _ = watching(**{"list jobs": [refusal(403, "you may not list jobs")]})
    assert asyncio.run(watcher.get_snapshot("j")) is None
    assert watcher.last_error == "you may not list jobs"
    watcher._snapshot_at = float("-inf")
    assert asyncio.run(watcher.get_snapshot("j")) is not None
    assert watcher.last_error == ""


def test_who_may_not_see_events_is_asked_once():
    watcher, server = watching(**{"list events": [refusal(403)]})
    server.there["jobs", "n"] = JOB
    for _ in range(3):
        watcher._snapshot_at = watcher._events_at = float("-inf")
        assert asyncio.run(watcher.get_snapshot("j")).jobs == {"n": JOB}
    assert server.asked.count(("list events", "events")) == 1


def test_what_is_gone_is_deleted_and_what_does_not_answer_is_not():
    watcher, server = watching(delete=[EngineError("kubernetes", "no route")])
    server.there["jobs", "n"] = JOB
    assert asyncio.run(watcher.delete("n")) is False
    assert asyncio.run(watcher.delete("n")) is True
    assert asyncio.run(watcher.delete("n")) is True
