"""Requests of a moment that are answered by one call."""

from __future__ import annotations

import asyncio

import pytest

from hyperplane.platforms.slurm.request_batcher import RequestBatcher


def test_requests_of_a_moment_and_of_a_kind_are_answered_together():
    asked = []

    async def answer(ones):
        asked.append(ones)
        return [2 * one for one in ones]

    async def go():
        batcher = RequestBatcher(answer)
        answers = await asyncio.gather(*(batcher.request(n, n % 2) for n in range(6)))
        return [*answers, await batcher.request(7, 1)]

    assert asyncio.run(go()) == [0, 2, 4, 6, 8, 10, 14]
    assert asked == [[0, 2, 4], [1, 3, 5], [7]]


def test_an_error_is_raised_by_all_requests():
    async def answer(ones):
        raise OSError(f"not {ones}")

    async def go():
        batcher = RequestBatcher(answer)
        return await asyncio.gather(*map(batcher.request, range(2)), return_exceptions=True)

    assert [str(wrong) for wrong in asyncio.run(go())] == ["not [0, 1]"] * 2


@pytest.mark.parametrize("uncancellable", [True, False])
def test_a_request_cancelled_early_is_withdrawn_and_a_later_one_may_wait(uncancellable):
    asked, done, answered = [], [], asyncio.Event()

    async def answer(ones):
        asked.append(ones)
        await answered.wait()
        done.append(ones)
        return ones

    async def go():
        batcher = RequestBatcher(answer, uncancellable=uncancellable)
        early, late, stays = (asyncio.ensure_future(batcher.request(n)) for n in range(3))
        await asyncio.sleep(0)
        early.cancel()
        await asyncio.wait({early})
        while not asked:
            await asyncio.sleep(0.01)
        late.cancel()
        await asyncio.wait({late}, timeout=0.2 if uncancellable else None)
        assert (late.done(), done) == (not uncancellable, [])
        answered.set()
        await asyncio.wait({late})
        assert (early.cancelled(), late.cancelled(), await stays) == (True, True, 2)
        withdrawn = asyncio.ensure_future(batcher.request(3))
        await asyncio.sleep(0)
        withdrawn.cancel()
        await asyncio.sleep(0.2)

    asyncio.run(go())
    assert asked == [[1, 2]]
