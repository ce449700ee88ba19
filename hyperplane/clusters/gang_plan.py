"""Processes of a gang that are programs: their names and variables, and messages on their ends.

The module needs no other package than Python's standard library, because the programs that start
the processes import it from a file.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

if __package__:
    from hyperplane.clusters.program_environment import RankAddresses, Role, make_rank_environment
    from hyperplane.clusters.rank_environment import RankAddress, build_rank_environment
else:  # in a program that runs without the package
    from program_environment import (  # type: ignore[import-not-found, no-redef]
        RankAddresses,
        Role,
        make_rank_environment,
    )
    from rank_environment import (  # type: ignore[import-not-found, no-redef]
        RankAddress,
        build_rank_environment,
    )

#: Variable with the plan of a step, as JSON.
PLAN_VARIABLE = "HYPERPLANE_JOB_GANG"
#: Variable with the number of restarts so far.
RESTARTS_VARIABLE = "HYPERPLANE_RESTART_COUNT"
#: Last lines of a process that the message on its failure shows.
TAIL_LINES = 20
_FAILURE = "; its last lines:"
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class GangPlan:
    """Processes that start together and end together.

    Parameters
    ----------
    size : int
        Number of processes.
    roles : sequence of (str, int)
        Role of each process of a training program, and its number within the role; the first is the
        primary, with which all end. Empty for a gang of equal ranks.
    module : str
        Module of the training program.
    arguments : sequence of str
        Arguments of the training program.
    """

    size: int
    roles: Sequence[tuple[Role, int]] = ()
    module: str = ""
    arguments: Sequence[str] = ()

    @classmethod
    def from_json(cls, text: str) -> GangPlan:
        """Return the plan of a text of :meth:`to_json`."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self))

    def name(self, number: int) -> str:
        """Return the name of a process, such as ``rank 0`` or ``worker-0``."""
        if not self.roles:
            return f"rank {number}"
        role, index = self.roles[number]
        return f"{role}-{index}"

    def is_complete(self, codes: dict[int, int]) -> bool:
        """Return whether the gang has succeeded; ``codes`` are those of ended processes."""
        if self.roles:
            return codes.get(0) == 0
        return len(codes) == self.size and not any(codes.values())

    def build_environment(
        self, number: int, addresses: Sequence[RankAddress], restarts: int
    ) -> dict[str, str | None]:
        """Return the variables of a process; None for one that it must not have.

        ``addresses`` are those of all processes, in order.
        """
        if len({address.host for address in addresses}) == 1 and addresses[0].host != _LOOPBACK:
            # The name of the only host may have an address that its processes cannot reach.
            addresses = [RankAddress(_LOOPBACK, each.port, each.master_port) for each in addresses]
        shared = build_rank_environment(number, addresses, restarts)
        if not self.roles:
            return dict(shared)
        kept = ("TORCHELASTIC_RESTART_COUNT", RESTARTS_VARIABLE, "GLOO_SOCKET_IFNAME")
        hosts: dict[Role, list[str]] = {}
        for (role, _), address in zip(self.roles, addresses, strict=True):
            if role != "evaluator" and self.size > 1:
                hosts.setdefault(role, []).append(address.join())
        master = f"{addresses[0].host}:{addresses[0].master_port}"
        role, index = self.roles[number]
        return {
            **{name: shared[name] for name in kept if name in shared},
            **make_rank_environment(
                role,
                index,
                RankAddresses(hosts, master),
                job_name=self.module,
                arguments=self.arguments,
            ),
        }


def plan_program(
    module: str,
    arguments: Sequence[str],
    *,
    workers: int,
    parameter_servers: int,
    evaluators: int,
    primary: Role = "chief",
) -> GangPlan:
    """Return the plan of a training program with one primary.

    Examples
    --------
    >>> plan = plan_program("trainer.task", [], workers=1, parameter_servers=1, evaluators=0)
    >>> [plan.name(number) for number in range(plan.size)]
    ['chief-0', 'ps-0', 'worker-0']
    """
    counts: dict[Role, int] = {
        primary: 1, "ps": parameter_servers, "worker": workers, "evaluator": evaluators,
    }  # fmt: skip
    roles = [(role, index) for role, count in counts.items() for index in range(count)]
    return GangPlan(len(roles), roles, module, list(arguments))


def describe_code(code: int) -> str:
    """Return a text of an exit code, such as ``exit code 3`` or ``SIGKILL``.

    Examples
    --------
    >>> describe_code(3), describe_code(-9)
    ('exit code 3', 'SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def format_failure(name: str, code: int, tail: Sequence[str]) -> str:
    """Return the lines at the end of the log of a gang that one process has ended."""
    shown = "".join(f"{name} | {line}\n" for line in tail[-TAIL_LINES:])
    head = f"{name} failed with {describe_code(code)}"
    return f"{head}{_FAILURE}\n{shown}" if shown else f"{head}, without output\n"


def read_failure(log: str) -> tuple[str, str]:
    r"""Return the name of the process that has failed, and its last lines.

    If none has failed, the name is empty, and the lines are the log.

    Examples
    --------
    >>> read_failure(format_failure("rank 1", 1, ["Traceback ...", "ValueError: no column"]))
    ('rank 1', 'Traceback ...\nValueError: no column')
    """
    lines = log.splitlines()
    for number in range(len(lines) - 1, -1, -1):
        name, failed, rest = lines[number].partition(" failed with ")
        if failed and rest.endswith((_FAILURE, ", without output")) and " | " not in name:
            prefix = f"{name} | "
            own = [line.removeprefix(prefix) for line in lines[number + 1 :] if prefix in line]
            return name, "\n".join(own)
    return "", log
