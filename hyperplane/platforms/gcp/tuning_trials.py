"""Trials of hyper-parameter tuning jobs of Vertex AI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class TuningTrial(NamedTuple):
    """A trial of a tuning job.

    Parameters
    ----------
    id : str
        Its number, as text.
    state : str
        Its state, such as ``"SUCCEEDED"``.
    log_key : str
        Last part of the name of its custom job, which the entries of its log have; empty before.
    values : dict
        Values of the parameters.
    metrics : dict of str to float
        Final values of the metrics; empty if it has reported none.
    """

    id: str
    state: str
    log_key: str
    values: dict[str, Any]
    metrics: dict[str, float]

    def describe(self) -> str:
        """Return it as a line of text.

        Examples
        --------
        >>> TuningTrial("2", "SUCCEEDED", "", {"rate": 0.1}, {"accuracy": 0.93}).describe()
        'trial 2 is SUCCEEDED: accuracy=0.93 with rate=0.1'
        """
        values = ", ".join(f"{name}={value}" for name, value in self.values.items())
        metrics = ", ".join(f"{name}={value:g}" for name, value in self.metrics.items())
        return f"trial {self.id} is {self.state}: {metrics or 'no metric'} with {values}"


def parse_trials(job: Mapping[str, Any]) -> tuple[TuningTrial, ...]:
    """Return the trials of a tuning job; none of a custom job."""
    return tuple(map(_parse_trial, job.get("trials", ())))


def find_best(job: Mapping[str, Any]) -> TuningTrial | None:
    """Return the trial with the best final value of the first metric; None if there is none.

    Examples
    --------
    >>> trials = [{"id": "1", "finalMeasurement": {"metrics": [{"metricId": "loss", "value": 2}]}},
    ...           {"id": "2", "finalMeasurement": {"metrics": [{"metricId": "loss", "value": 1}]}}]
    >>> study = {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}]}
    >>> find_best({"trials": trials, "studySpec": study}).id
    '2'
    """
    study: Sequence[Mapping[str, Any]] = job.get("studySpec", {}).get("metrics", ())
    if not study:
        return None
    name, sign = study[0].get("metricId", ""), -1 if study[0].get("goal") == "MINIMIZE" else 1
    measured = [trial for trial in parse_trials(job) if name in trial.metrics]
    return max(measured, key=lambda trial: sign * trial.metrics[name], default=None)


def _parse_trial(trial: Mapping[str, Any]) -> TuningTrial:
    measured = trial.get("finalMeasurement", {}).get("metrics", ())
    return TuningTrial(
        str(trial.get("id", "")),
        str(trial.get("state", "")),
        str(trial.get("customJob", "")).rpartition("/")[2],
        {each["parameterId"]: each.get("value") for each in trial.get("parameters", ())},
        # JSON of Google omits the number 0.
        {each["metricId"]: float(each.get("value", 0.0)) for each in measured},
    )
