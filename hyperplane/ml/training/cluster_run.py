"""Run of a training program on the workers of a Dask cluster, as a gang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from hyperplane.clusters.gang_plan import GangPlan, describe_code, plan_program
from hyperplane.clusters.rank_environment import RankAddress
from hyperplane.core.active_cluster import find_client_faults
from hyperplane.core.argument_checks import find_flag_faults
from hyperplane.core.errors import Fault, GangFailed, check
from hyperplane.ml.training.run_plan import (
    ProgramRequest,
    find_argument_faults,
    find_path_faults,
    find_primary_role,
    read_counts,
)

if TYPE_CHECKING:
    from distributed import Client
#: Number of processes, in the arguments of the user.
_COUNT_ARGUMENTS = "1 + worker_count + parameter_server_count + evaluator_count"


class ProgramEnded(SystemExit):
    """The process that ends the run has ended; raised in its rank, so that all others end.

    Parameters
    ----------
    name : str
        Name of the process, such as ``chief-0``.
    return_code : int
        Its return code, negative for a signal.
    """

    def __init__(self, name: str, return_code: int) -> None:
        super().__init__(f"{name} ended the run with return code {return_code}")
        self.name, self.return_code = name, return_code

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to create the exception in another process."""
        return type(self), (self.name, self.return_code)


def run_on_cluster(request: ProgramRequest, client: Client) -> int:
    """Run the processes on the workers until the primary ends; return its code."""
    faults, folder = find_path_faults(request)
    faults += find_argument_faults(request)
    faults += find_flag_faults(distributed=request.distributed, fail_fast=request.fail_fast)
    counts, count_faults = read_counts(request)
    faults += [*count_faults, *find_client_faults(client)]
    if request.start_port is not None:
        allowed = "no value with client, whose workers select unused ports"
        faults.append(Fault("start_port", str(request.start_port), allowed))
    check(faults)
    arguments = [str(argument) for argument in request.arguments]
    if request.job_dir is not None:
        arguments += ["--job-dir", os.fspath(request.job_dir)]
    workers, servers, evaluators = counts.values() if request.distributed else (0, 0, 0)
    plan = plan_program(
        request.module_name,
        arguments,
        workers=workers,
        parameter_servers=servers,
        evaluators=evaluators,
        primary=find_primary_role(),
    )
    # Imported here because it loads distributed.
    from hyperplane.clusters.dask.gang.gang_run import GangRequest, run_gang

    words = ("-m", request.module_name, *arguments)
    try:
        call = (plan.to_json(), words, str(folder), request.fail_fast)
        gang = GangRequest(run_process, plan.size, call, count_argument=_COUNT_ARGUMENTS)
        run_gang(client, gang)
    except GangFailed as error:
        if isinstance(error.__cause__, ProgramEnded):
            return error.__cause__.return_code
        raise
    raise AssertionError  # the primary ends the gang, and does not return


def run_process(plan_text: str, words: tuple[str, ...], folder: str, fail_fast: bool) -> int:
    """Run one process of the program in a rank; the primary ends the gang by its end."""
    plan, number = GangPlan.from_json(plan_text), int(os.environ["RANK"])
    variables: dict[str, Any] = {
        **os.environ,
        **plan.build_environment(number, _read_addresses(), 0),
    }
    child = subprocess.Popen(  # noqa: S603 - a list, and no shell
        [sys.executable, *words],
        cwd=folder,
        env={name: text for name, text in variables.items() if text is not None},
        stdin=subprocess.DEVNULL,
    )
    code, name = child.wait(), plan.name(number)
    if number == 0 or (code and fail_fast):
        raise ProgramEnded(name, code)
    if code:
        os.write(1, f"{name} ended with {describe_code(code)} before the primary\n".encode())
    return code


def _read_addresses() -> list[RankAddress]:
    """Return the addresses of all ranks; only that of rank 0 has a port for ``MASTER_PORT``."""
    workers = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
    pairs = [address.rpartition(":")[::2] for address in workers]
    port = int(os.environ["MASTER_PORT"])
    return [RankAddress(host.strip("[]"), int(number), port) for host, number in pairs]
