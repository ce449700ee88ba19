"""The running GraphQL server in the environment of a step, and its token in the step's log."""

from __future__ import annotations

from collections.abc import Mapping

from hyperplane.jobs.graphql_server import TOKEN_VARIABLE, URL_VARIABLE, find_server


def server_variables(runner: object, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the running server for a step, unless its environment names one.

    Only for steps on this machine: others cannot connect to the loopback address.
    """
    if URL_VARIABLE in environment or not getattr(runner, "uses_this_machine", False):
        return {}
    server = find_server()
    return {} if server is None else server.variables


def find_tokens(runner: object, environment: Mapping[str, str]) -> set[str]:
    """Return the tokens that the log of an ended step may have.

    ``environment`` is that of the step; empty if another supervisor has started it.
    """
    if not getattr(runner, "uses_this_machine", False):
        return set()
    server = find_server()
    tokens = {environment.get(TOKEN_VARIABLE, ""), "" if server is None else server.token}
    return tokens - {""}
