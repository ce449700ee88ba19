"""More GraphQL queries at the same time than the server answers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from graphql_requests import address_of
from ui_server import LIMIT, UiServer

from hyperplane.jobs import graphql_client

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_all_queries_are_answered_and_the_page_is_not_shut_out(
    start_server: Callable[..., UiServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_server()
    server.login()
    monkeypatch.setenv("HYPERPLANE_GRAPHQL_URL", address_of(server)["url"])
    monkeypatch.setattr(graphql_client, "_BUSY_SECONDS", LIMIT)

    def ask(number: int) -> int:
        results = graphql_client.run_queries(["{ pipelineJobs { id } }", "{ countJobs }"])
        return results[1]["countJobs"]

    with ThreadPoolExecutor(250) as pool:
        asked = [pool.submit(ask, number) for number in range(500)]
        codes = {server.request("/").code}
        while not all(each.done() for each in asked):
            codes.add(server.request("/").code)
        assert len({each.result() for each in asked}) == 1
    assert codes == {200}
