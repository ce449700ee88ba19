"""Draw which job runs and which faults happen during it, from a seed."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

#: Faults of worker processes, of their connections, clocks and disk, and of the owner.
WORKER_FAULTS = (
    "kill worker",
    "kill all workers",
    "terminate worker",
    "stop worker",
    "freeze worker",
)
CONNECTION_FAULTS = ("drop connections", "delay connections", "slow connections", "cut connections")
OTHER_FAULTS = (
    "skew worker clock",
    "skew owner clock",
    "fill disk",
    "restart",
    "scale down",
    "scale up and down",
)
OWNER_FAULTS = ("stop owner", "close cluster", "end scheduler", "kill owner")
LOCAL_FAULTS = (*WORKER_FAULTS, *CONNECTION_FAULTS, *OTHER_FAULTS, *OWNER_FAULTS, "kill forkserver")
#: Hosts and jobs of Slurm are not scaled during a job: that is tested in test_ssh_life.py and
#: test_slurm_life.py, and a new job of Slurm may wait for longer than a run.
REMOTE_FAULTS = (
    *WORKER_FAULTS,
    *CONNECTION_FAULTS,
    "skew worker clock",
    "restart",
    "stop owner",
    "kill scheduler",
    "close cluster",
    "kill owner",
)
#: With Slurm the scheduler is in the process of the owner.
FAULTS = {
    "local": LOCAL_FAULTS,
    "ssh": REMOTE_FAULTS,
    "slurm": tuple(
        "skew owner clock" if kind == "kill scheduler" else kind for kind in REMOTE_FAULTS
    ),
}
#: After these the cluster is gone.
ENDING = {"close cluster", "end scheduler", "kill owner", "kill scheduler"}


@dataclass(frozen=True)
class PlannedFault:
    """One fault of a run.

    Parameters
    ----------
    kind : str
        One of ``FAULTS``.
    moment : float
        When it happens, as a share of the tasks or the seconds of the undisturbed job.
    victim : int
        Number that chooses the worker.
    seconds : float
        How long it lasts, if it ends.
    amount : float
        Seconds of a delay, bytes per second, or seconds by which a clock jumps.
    """

    kind: str
    moment: float
    victim: int
    seconds: float
    amount: float


@dataclass(frozen=True)
class ChaosSchedule:
    """The job and the faults of one seed."""

    seed: int
    job: str
    faults: tuple[PlannedFault, ...]

    @property
    def kinds(self) -> str:
        """Names of the faults."""
        return " + ".join(fault.kind for fault in self.faults)

    def to_dict(self) -> dict[str, Any]:
        """Return the schedule as plain data."""
        return asdict(self)


def draw_schedule(
    seed: int, jobs: Sequence[str], engine: str = "local", kinds: Sequence[str] = ()
) -> ChaosSchedule:
    """Return the schedule of a seed; ``kinds`` are the faults to draw from, by default all.

    Consecutive seeds go through all kinds of faults and all jobs, so that a few runs have many of
    them; the moments, victims and second faults are random.
    """
    kinds = kinds or FAULTS[engine]
    dice = random.Random(f"chaos {seed}")
    # Each round through the kinds begins at another job.
    job = jobs[(seed + seed // len(kinds) * 5) % len(jobs)]
    chosen = [kinds[seed % len(kinds)]]
    if chosen[0] not in ENDING and dice.random() < 0.3:
        chosen.append(dice.choice(kinds))
    return ChaosSchedule(seed, job, tuple(_draw_fault(kind, dice) for kind in chosen))


def _draw_fault(kind: str, dice: random.Random) -> PlannedFault:
    amounts = {
        "delay connections": dice.uniform(0.02, 0.3),
        "slow connections": dice.choice([20_000, 200_000]),
        "skew worker clock": dice.choice([-86_400, -90, 90, 86_400]),
        "skew owner clock": dice.choice([-86_400, -90, 90, 86_400]),
    }
    seconds = dice.choice([0.5, 3.0, 10.0])
    moment, victim = dice.uniform(0.02, 0.95), dice.randrange(100)
    return PlannedFault(kind, round(moment, 3), victim, seconds, round(amounts.get(kind, 0), 3))


def requested_seeds(default: Sequence[int]) -> list[int]:
    """Return the seed in ``HYPERPLANE_CHAOS_SEED``, or the default seeds."""
    given = os.environ.get("HYPERPLANE_CHAOS_SEED")
    return [int(given)] if given else list(default)
