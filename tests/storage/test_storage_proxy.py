"""Errors that gcsfs and s3fs raise for failing stores equal the injected errors."""

from __future__ import annotations

import asyncio

import fsspec
import proxy
import pytest
import store_errors
from faulty_store import Faults

pytestmark = pytest.mark.service
PROTOCOLS = {"gcs": "gs", "s3": "s3"}


@pytest.fixture(params=PROTOCOLS)
def like(request):
    return request.param


@pytest.fixture
def bucket(request, like):
    return request.getfixturevalue(like)


@pytest.fixture
def spoiled(request, bucket, like, monkeypatch):
    """Provide a proxy, the file system through it, and the bucket, with short retries."""
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds, *rest: sleep(seconds / 500, *rest))
    short = "timeout" in request.node.name
    with proxy.before(bucket.options["endpoint_url"], like=like) as between:
        options = {**bucket.options, "endpoint_url": between.url}
        if short and like == "gcs":
            import aiohttp

            options["requests_timeout"] = aiohttp.ClientTimeout(total=0.1)
        elif short:
            options["config_kwargs"] = {"read_timeout": 0.1}
        system = fsspec.filesystem(PROTOCOLS[like], skip_instance_cache=True, **options)
        yield between, system, bucket.url.partition("://")[2]


@pytest.mark.parametrize("kind", ["429", "500", "503", "reset", "closed", "timeout", "403", "404"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # connections that the proxy cut off
def test_injected_errors_equal_those_of_the_libraries(spoiled, like, kind):
    between, system, top = spoiled
    # The answer is delayed until the client has timed out, however slow this process is.
    between.faults = Faults(like=like, transient=1, kinds=(kind,), retry_after=7, slow_seconds=250)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - compared below
        system.pipe_file(f"{top}/a", b"1")
    real, ours = caught.value, store_errors.make(kind, like, "url", 7)
    assert type(ours) is type(real)
    for field in ("errno", "code"):
        assert getattr(ours, field, None) == getattr(real, field, None)
    answers = [getattr(error.__cause__, "response", None) for error in (ours, real)]
    if like == "gcs" or not kind.isdigit():
        assert answers == [None, None]
        return
    for answer in answers:
        metadata = answer["ResponseMetadata"]
        assert metadata["HTTPHeaders"]["retry-after"] == "7"
        assert metadata["HTTPStatusCode"] == int(kind)
    assert answers[0]["Error"]["Code"] == answers[1]["Error"]["Code"]


def test_a_creation_with_a_lost_response_raises_file_exists_error(spoiled):
    """The library retries when an answer is lost, and finds the object it has written."""
    between, system, top = spoiled
    between.faults = Faults(like=between.faults.like, lost=1)
    answers = iter(["lost", "ok"])
    between.draw = lambda request, writes: next(answers)
    with pytest.raises(FileExistsError):
        system.pipe_file(f"{top}/a", b"1", mode="create")
    assert between.outcomes == {"lost": 1, "ok": 1}
    between.draw = lambda request, writes: "ok"
    assert system.cat_file(f"{top}/a") == b"1"


def test_a_few_faults_are_absorbed_by_the_libraries(spoiled, like):
    between, system, top = spoiled
    between.faults = Faults(like=like)
    # Fewer faults than attempts per request, so no request fails.
    refusals = iter(["503"] * 4)
    between.draw = lambda request, writes: next(refusals, "ok")
    system.pipe({f"{top}/{number}": str(number).encode() for number in range(100)})
    system.invalidate_cache()
    assert len(system.find(top)) == 100
    assert between.outcomes["503"] == 4


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_large_upload_succeeds(spoiled):
    between, system, top = spoiled
    data = bytes(range(256)) * 50_000
    with system.open(f"{top}/big", "wb", block_size=5 * 2**20) as file:
        file.write(data)
    assert system.cat_file(f"{top}/big") == data
    assert between.outcomes["ok"] >= 3
