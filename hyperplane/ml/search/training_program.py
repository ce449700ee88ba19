"""Objective that runs a training program, as the tuning jobs of Cloud ML do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperplane.clusters.program_environment import make_tf_config
from hyperplane.ml.search.trial import Trial

#: File into which the package cloudml-hypertune writes values of the metric.
_METRIC_FILE = "CLOUD_ML_HP_METRIC_FILE"
_TRIAL_ID = "CLOUD_ML_TRIAL_ID"
#: Seconds between readings of the metric while the program runs.
_POLL_SECONDS = 0.2
#: Seconds after SIGTERM after which the program is killed.
_END_SECONDS = 10.0
#: Last bytes of the output of a failed program that its error shows.
_TAIL_BYTES = 1500


@dataclass(frozen=True)
class TrainingProgram:
    """A program that runs once for each trial.

    Parameters
    ----------
    command : tuple of str
        Program and arguments; the values of the parameters follow as ``--NAME=VALUE``.
    metric : str
        Tag of the metric.
    directory : str
        Working directory of the program.
    job_dir : str or None
        Folder or URL passed as ``--job-dir``, with the number of the trial.
    log_folder : str or None
        Folder for the output of the programs, if they share a disk with this process.
    """

    command: tuple[str, ...]
    metric: str
    directory: str
    job_dir: str | None
    log_folder: str | None

    def __call__(self, values: Mapping[str, Any], trial: Trial) -> float | None:
        """Run the program, and return the last value of its metric; None if it was stopped."""
        with self._open_log(trial.number) as log, tempfile.TemporaryDirectory() as folder:
            metric_file = Path(folder, "output.metrics")
            process = self._start(values, trial.number, metric_file, log)
            try:
                stopped = self._watch(process, metric_file, trial)
            finally:
                _end(process)
            metrics = read_metrics(metric_file, self.metric)
            if stopped:
                return None
            if process.returncode != 0:
                code = process.returncode
                raise RuntimeError(f"the program ended with exit code {code}: {_read_tail(log)}")
        if not metrics:
            raise RuntimeError(
                f"the program wrote no value of {self.metric} into the file in ${_METRIC_FILE}"
            )
        return metrics[-1][1]

    def _start(
        self, values: Mapping[str, Any], number: int, metric_file: Path, log: Any
    ) -> subprocess.Popen[bytes]:
        # Cloud ML counts trials from 1.
        trial = str(number + 1)
        arguments = [f"--{name}={value}" for name, value in values.items()]
        if self.job_dir is not None:
            arguments += ["--job-dir", f"{self.job_dir.rstrip('/')}/{trial}"]
        environment = {
            **os.environ,
            _METRIC_FILE: str(metric_file),
            _TRIAL_ID: trial,
            "TF_CONFIG": make_tf_config(self.command[-1], arguments, {"trial": trial}, {}),
            "PYTHONUNBUFFERED": "1",
        }
        wrapper = [sys.executable, "-m", "hyperplane.ml.search.program_wrapper", str(os.getpid())]
        return subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
            [*wrapper, *self.command, *arguments],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def _watch(self, process: subprocess.Popen[bytes], metric_file: Path, trial: Trial) -> bool:
        """Report new values until the program ends; return whether it should be stopped."""
        seen = 0
        while process.poll() is None:
            metrics = read_metrics(metric_file, self.metric)
            for step, value in metrics[seen:]:
                trial.report(value, step)
                if trial.should_prune():
                    return True
            seen = max(seen, len(metrics))
            time.sleep(_POLL_SECONDS)
        for step, value in read_metrics(metric_file, self.metric)[seen:]:
            trial.report(value, step)
        return False

    @contextmanager
    def _open_log(self, number: int) -> Iterator[Any]:
        if self.log_folder is None or not Path(self.log_folder).is_dir():
            with tempfile.TemporaryFile() as log:
                yield log
            return
        with Path(self.log_folder, f"trial-{number + 1}.log").open("w+b") as log:
            yield log


def read_metrics(file: Path, tag: str) -> list[tuple[int, float]]:
    """Return the steps and values of a metric that a program has written so far.

    Each line is a JSON object with the value under the tag, and with ``global_step``.
    """
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    metrics: list[tuple[int, float]] = []
    for line in lines:
        try:
            entry = json.loads(line)
            metrics.append((int(entry.get("global_step") or len(metrics)), float(entry[tag])))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # a line that is being written, or of another metric
    return metrics


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _read_tail(log: Any) -> str:
    end = log.seek(0, os.SEEK_END)
    log.seek(max(0, end - _TAIL_BYTES))
    tail: str = log.read().decode(errors="replace").strip()
    return tail or "it printed nothing"
