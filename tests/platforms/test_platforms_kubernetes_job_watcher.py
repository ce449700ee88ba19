"""Requests to an API server that refuses, does not respond, or loses responses."""

from __future__ import annotations

import asyncio
import errno

import pytest

from hyperplane.platforms.kubernetes import job_watcher
from hyperplane.platforms.kubernetes.api import KubernetesApi
from hyperplane.platforms.kubernetes.errors import KubernetesError, ObjectNotFound, RequestRefused
from hyperplane.platforms.kubernetes.job_watcher import JobWatcher

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "n"}}


def refusal(status, words="no"):
    return RequestRefused(words, status)


class Server(KubernetesApi):
    """An API server that gives these responses first, and then serves requests."""

    def __init__(self, **answers):
        super().__init__("lab")
        self._answers, self.asked, self.there = answers, [], {}

    async def connect(self):
        self._next("connect", "")

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
            raise KubernetesError("the answer was lost")
        self._next("create", kind)
        self.there[kind, name] = found
        return found

    async def get(self, kind, name, version="v1"):
        self._next("get", kind)
        if (kind, name) not in self.there:
            raise ObjectNotFound(f"no {kind} {name}")
        return self.there[kind, name]

    async def list(self, kind, version="v1", *, labels="", fields=""):
        self._next(f"list {kind}", kind)
        return [one for (sort, _), one in self.there.items() if sort == kind]

    async def delete(self, kind, name, version):
        self._next("delete", kind)
        if (kind, name) not in self.there:
            raise ObjectNotFound("no such job")
        del self.there[kind, name]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    pause = asyncio.sleep
    monkeypatch.setattr(job_watcher.asyncio, "sleep", lambda seconds: pause(0))


def watching(**answers):
    server = Server(**answers)
    return JobWatcher(server, "step"), server


def owned(job):
    return {"metadata": {"name": "n"}, "owner": job["metadata"]["uid"]}


def test_temporary_errors_are_retried():
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
    assert [verb for verb, _ in server.asked] == ["connect", "create"]


def test_an_unreachable_server_is_a_temporary_error(monkeypatch):
    monkeypatch.setattr(job_watcher, "CREATE_SECONDS", -1)
    watcher, _ = watching(create=[KubernetesError("no route")])
    with pytest.raises(OSError, match="no route") as caught:
        asyncio.run(watcher.create(JOB, owned))
    assert caught.value.errno == errno.EAGAIN


def test_each_job_has_its_secret_before_the_next_job_is_created():
    watcher, server = watching()

    async def many():
        jobs = [{**JOB, "metadata": {"name": str(number)}} for number in range(40)]
        await asyncio.gather(
            *(
                watcher.create(
                    job, lambda created: {"metadata": {"name": created["metadata"]["name"]}}
                )
                for job in jobs
            )
        )

    asyncio.run(many())
    kinds = [kind for verb, kind in server.asked if verb == "create"]
    behind = [kinds[:at].count("jobs") - kinds[:at].count("secrets") for at in range(len(kinds))]
    assert max(behind) <= job_watcher.MAX_CONCURRENT_REQUESTS


def test_no_response_is_no_end_and_is_reported():
    watcher, _ = watching(**{"list jobs": [refusal(403, "you may not list jobs")]})
    assert asyncio.run(watcher.get_snapshot("j")) is None
    assert watcher.last_error == "you may not list jobs"
    watcher._snapshot_at = float("-inf")
    assert asyncio.run(watcher.get_snapshot("j")) is not None
    assert watcher.last_error == ""


def test_forbidden_events_are_requested_once():
    watcher, server = watching(**{"list events": [refusal(403)]})
    server.there["jobs", "n"] = JOB
    for _ in range(3):
        watcher._snapshot_at = watcher._events_at = float("-inf")
        assert asyncio.run(watcher.get_snapshot("j")).jobs == {"n": JOB}
    assert server.asked.count(("list events", "events")) == 1


def test_delete_reports_whether_the_job_is_deleted():
    watcher, server = watching(delete=[KubernetesError("no route")])
    server.there["jobs", "n"] = JOB
    assert asyncio.run(watcher.delete("n")) is False
    assert asyncio.run(watcher.delete("n")) is True
    assert asyncio.run(watcher.delete("n")) is True


def test_one_connection_serves_all_requests_and_a_failed_one_is_repeated():
    watcher, server = watching(connect=[KubernetesError("no route")])

    async def many():
        assert not await watcher.delete("n")
        return await asyncio.gather(*(watcher.delete("n") for _ in range(5)))

    assert asyncio.run(many()) == [True] * 5
    assert server.asked.count(("connect", "")) == 2


def test_a_namespace_that_does_not_exist_is_a_refusal():
    watcher, server = watching(create=[ObjectNotFound("no namespace lab")])
    with pytest.raises(PermissionError, match="no namespace lab"):
        asyncio.run(watcher.create(JOB, owned))
    assert server.there == {}


def test_an_object_that_is_deleted_meanwhile_is_created_again():
    watcher, server = watching(create=[refusal(409, 'jobs "n" already exists')])
    asyncio.run(watcher.create(JOB, lambda job: None))
    assert list(server.there) == [("jobs", "n")]
    assert ("get", "jobs") in server.asked


def test_has_secret_is_true_false_or_unknown():
    watcher, server = watching(get=[KubernetesError("no route"), None])
    assert asyncio.run(watcher.has_secret("n")) is None
    assert asyncio.run(watcher.has_secret("n")) is False
    server.there["secrets", "n"] = {}
    assert asyncio.run(watcher.has_secret("n")) is True
