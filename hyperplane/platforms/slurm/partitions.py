"""Let Slurm check a batch script against partitions, accounts and limits, without a job."""

from __future__ import annotations

import re
from typing import NamedTuple

from hyperplane.platforms.slurm.commands import run_command_async

#: Messages of refusals that a real submission would get, too. Slurm accepts jobs that others are
#: about, such as a policy of the account, a limit of the partition or a node that is down, unless
#: the cluster is configured to refuse them; the jobs wait.
_CERTAIN = re.compile(
    r"invalid (account|partition|qos|directive|option)|unrecognized option|"
    r"requested node configuration",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^(sbatch|allocation failure)(: error)?: *", re.IGNORECASE)


class ScriptRefusal(NamedTuple):
    """Slurm's message on a script that it does not accept now.

    Parameters
    ----------
    message : str
        Slurm's message.
    certain : bool
        Whether any cluster refuses such a submission; on others its job may wait.
    """

    message: str
    certain: bool


async def check_script(script: str, timeout: float) -> ScriptRefusal | None:
    """Return why Slurm would refuse a batch script; None if it would accept it.

    Raises
    ------
    OSError
        If sbatch cannot be started, or does not answer in time; it was killed.
    """
    result = await run_command_async(
        ["sbatch", "--test-only"], stdin=script, timeout=timeout, kill_on_cancel=True
    )
    if not result.exit_code:
        return None
    lines = [_PREFIX.sub("", line.strip()) for line in result.errors.splitlines()]
    message = "; ".join(filter(None, lines)) or result.message
    return ScriptRefusal(message, certain=bool(_CERTAIN.search(message)))
