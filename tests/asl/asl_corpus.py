"""Corpus of state machines, their tasks, and a clock that does not wait."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyperplane.asl.items import object_reader
from hyperplane.asl.reading import Machine, read_machine

MACHINES = Path(__file__).with_name("machines")
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def names(folder: str) -> list[str]:
    """Names of the machines of a folder."""
    return sorted(path.name.partition(".")[0] for path in (MACHINES / folder).glob("*.asl.json"))


def machine_of(folder: str, name: str) -> Path:
    return MACHINES / folder / f"{name}.asl.json"


def case_of(folder: str, name: str) -> dict[str, Any]:
    text = (MACHINES / folder / f"{name}.case.json").read_text(encoding="utf-8")
    case: dict[str, Any] = json.loads(text)
    return case


def outcome(work: Callable[..., Any], refusal: type[Exception], *arguments: Any) -> Any:
    """Result of a call, or the error that it raises."""
    try:
        return work(*arguments)
    except refusal as error:
        return error


class Clock:
    """A clock that advances only in sleep()."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=sum(self.waits))

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


def broken(data: Any) -> Any:
    raise ValueError(data["say"])


def odd_only(number: int) -> int:
    if number % 2 == 0:
        raise ValueError(f"{number} is even")
    return number


def tasks(root: Path) -> dict[str, Any]:
    """Tasks of the machines; some fail a few times before they succeed."""
    calls: list[Any] = []

    def flaky(data: Any) -> int:
        calls.append(data)
        if len(calls) <= data["failures"]:
            raise ConnectionError(f"failure {len(calls)}")
        return len(calls) - 1

    def flaky_unless(data: Any) -> Any:
        if data["retry"] < 2:
            raise OSError
        return data

    def either(data: Any) -> str:
        calls.append(data)
        if len(calls) <= len(data["raise"]):
            name = data["raise"][len(calls) - 1]
            raise {"KeyError": KeyError, "ValueError": ValueError, "OSError": OSError}[name]
        return "done"

    return {
        "echo": lambda data: data,
        "double": lambda data: 2 * data["n"],
        "broken": broken,
        "odd_only": odd_only,
        "flaky": flaky,
        "flaky_unless": flaky_unless,
        "either": either,
        "arn:aws:states:::s3:getObject": object_reader(str(root)),
    }


def write_objects(root: Path) -> None:
    """Write the objects that ItemReaders read."""
    bucket = root / "sales"
    bucket.mkdir()
    (bucket / "june.csv").write_text('\ufeffcity,trips\nBergen,3\n"Oslo, N",4\n', encoding="utf-8")
    (bucket / "bad.csv").write_text("city,trips\nBergen\n")
    (bucket / "piped.csv").write_text("Bergen|3\nOslo|4\n")
    (bucket / "june.jsonl").write_text('{"n": 1}\n{"n": 2}\n\n{"n": 3}\n')
    (bucket / "june.json").write_text("[1, 2]")
    (bucket / "object.json").write_text('{"a": 1}')


def one(state: dict[str, Any], **machine: Any) -> Machine:
    """Create a machine of one state."""
    return read_machine({"StartAt": "A", "States": {"A": {"End": True, **state}}, **machine})


def task(resource: str = "work", name: str = "I", **more: Any) -> dict[str, Any]:
    """Create a branch of one task."""
    return {
        "StartAt": name,
        "States": {name: {"Type": "Task", "Resource": resource, "End": True, **more}},
    }


def parallel(*branches: dict[str, Any], **more: Any) -> Machine:
    return one({"Type": "Parallel", "Branches": list(branches), **more})


def each(**more: Any) -> Machine:
    """Create a machine that calls a task for each item."""
    return one({"Type": "Map", "ItemProcessor": task(), **more})
