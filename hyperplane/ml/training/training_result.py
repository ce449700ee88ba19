"""Results of training on several workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TrainingResult:
    """A trained network.

    Parameters
    ----------
    model : torch.nn.Module
        Copy of the model with the trained parameters, in this process.
    history : list of dict
        One entry for each epoch or round.
    """

    model: Any
    history: Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class AsynchronousTrainingResult(TrainingResult):
    """A network that a parameter server has trained.

    Parameters
    ----------
    staleness : dict
        Number of updates by their staleness: how many other updates the server has applied between
        the fetch of the parameters and the gradient that was computed with them.
    rejected : int
        Number of gradients that were staler than ``max_staleness`` and were computed again.
    restarts : int
        Number of restarts of the parameter server.
    """

    staleness: Mapping[int, int] = field(default_factory=dict)
    rejected: int = 0
    restarts: int = 0
