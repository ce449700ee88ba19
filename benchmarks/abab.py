"""Run commands alternately (A B A B) and compare the figures that they print."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence

import cpu_group

Figures = dict[str, list[float]]


def run_alternately(
    commands: Mapping[str, Sequence[str]], rounds: int, warm_up: int = 1
) -> dict[str, Figures]:
    """Run each command once per round; its last line is a JSON object of figures.

    The CPU time of each whole run is a further figure, where control groups can be created.
    """
    results: dict[str, Figures] = {name: {} for name in commands}
    for turn in range(-warm_up, rounds):
        for name, command in commands.items():
            done, cpu = cpu_group.run([sys.executable, *command])
            if done.returncode:
                sys.exit(f"{name} failed:\n{done.stdout}\n{done.stderr}")
            if turn >= 0:
                figures = json.loads(done.stdout.splitlines()[-1])
                if cpu is not None:
                    figures["CPU of the whole run"] = cpu
                for key, value in figures.items():
                    results[name].setdefault(key, []).append(value)
    return results


def print_report(title: str, results: Mapping[str, Figures], ours: str, theirs: str) -> None:
    """Print the medians, and the median of the ratios of the rounds."""
    print(f"\n{title} ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})")
    print(f"{'':28}{theirs:>16}{ours:>16}{'ratio':>8}  (min-max)")
    for key in results[ours]:
        a, b = results[ours][key], results[theirs][key]
        ratios = [x / y for x, y in zip(a, b, strict=True)]
        print(
            f"{key:28}{statistics.median(b):14.3f} s{statistics.median(a):14.3f} s"
            f"{statistics.median(ratios):8.2f}  ({min(ratios):.2f}-{max(ratios):.2f})"
        )
