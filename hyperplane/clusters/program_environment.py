"""Environment variables that give a process of a training program its role, rank and addresses.

``TF_CONFIG`` is that of Cloud ML; ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``LOCAL_WORLD_SIZE``,
``MASTER_ADDR`` and ``MASTER_PORT`` are those of torchrun. The primary has rank 0, and workers
follow it. Parameter servers and evaluators have no rank. The module needs no other package, because
the processes of steps import it from a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

if __package__:
    from hyperplane.clusters.rank_environment import number_rank
else:  # in a program that runs without the package
    from rank_environment import number_rank  # type: ignore[import-not-found, no-redef]

Role = Literal["chief", "master", "worker", "ps", "evaluator"]

PRIMARY_ROLES: tuple[Role, ...] = ("chief", "master")
RANK_VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "HYPERPLANE_RANK", "HYPERPLANE_WORLD_SIZE", "GROUP_RANK",
)  # fmt: skip


@dataclass(frozen=True)
class RankAddresses:
    """Addresses of the processes of one run.

    Parameters
    ----------
    by_role : mapping of str to sequence of str
        ``host:port`` of each process by its role, as in ``TF_CONFIG``: the primary (``chief`` or
        ``master``), ``ps`` and ``worker``. Empty for a run of one process. Evaluators have none.
    master : str or None
        ``host:port`` at which rank 0 of torch listens; by default the address of the primary.
    """

    by_role: Mapping[Role, Sequence[str]] = field(default_factory=dict)
    master: str | None = None

    def ranked(self) -> list[str]:
        """Return the addresses in the order of their ranks."""
        primary = [each for role in PRIMARY_ROLES for each in self.by_role.get(role, ())]
        return [*primary, *self.by_role.get("worker", ())]


def make_rank_environment(
    role: Role,
    index: int,
    addresses: RankAddresses,
    *,
    job_name: str = "",
    arguments: Sequence[str] = (),
) -> dict[str, str | None]:
    """Return the variables of one process; None for a variable that it must not have.

    Parameters
    ----------
    role : str
        ``chief``, ``master``, ``worker``, ``ps`` or ``evaluator``.
    index : int
        Number of the process within its role, from 0.
    addresses : RankAddresses
        Addresses of all processes of the run.
    job_name : str
        Module of the program, for ``TF_CONFIG``.
    arguments : sequence of str
        Arguments of the program, for ``TF_CONFIG``.

    Examples
    --------
    >>> addresses = RankAddresses({"chief": ["a:2222"], "worker": ["a:2223", "b:2222"]})
    >>> variables = make_rank_environment("worker", 1, addresses)
    >>> [variables[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")]
    ['2', '3', '0', 'a']
    >>> make_rank_environment("ps", 0, addresses)["RANK"] is None
    True
    """
    cluster = {each: list(hosts) for each, hosts in addresses.by_role.items() if hosts}
    task = {"type": role, "index": index} if cluster else {}
    variables: dict[str, str | None] = dict.fromkeys(RANK_VARIABLES)
    variables["TF_CONFIG"] = make_tf_config(job_name, arguments, task, cluster)
    rank = _find_rank(role, index)
    if rank is None:
        return variables
    ranked = addresses.ranked() or ["localhost"]
    hosts = [address.rpartition(":")[0] or address for address in ranked]
    variables |= number_rank(rank, hosts)
    host, colon, port = (addresses.master or ranked[0]).rpartition(":")
    if colon:
        variables |= {"MASTER_ADDR": host, "MASTER_PORT": port}
    return variables


def make_tf_config(
    job_name: str,
    arguments: Sequence[str],
    task: Mapping[str, object],
    cluster: Mapping[Role, Sequence[str]],
) -> str:
    """Return the value of ``TF_CONFIG``, as Cloud ML sets it."""
    job = {"job_name": job_name, "args": list(arguments)}
    return json.dumps({"job": job, "task": task, "cluster": cluster, "environment": "cloud"})


def _find_rank(role: Role, index: int) -> int | None:
    if role in PRIMARY_ROLES:
        return 0
    return index + 1 if role == "worker" else None
