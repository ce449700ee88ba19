"""Collections that programs define."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hyperplane.errors import RequestError
from hyperplane.forecasts.program import load_collection

PROGRAM = """
import dask.array as da
import constants_of_the_program
numbers = da.ones((40, 10), chunks=10)
def scaled(block):
    return block * constants_of_the_program.FACTOR
total = numbers.map_blocks(scaled).sum()
def make():
    return total
five = 5
def fail():
    raise ValueError("no data\\nmore text")
if __name__ == "__main__":
    raise SystemExit("the job is not to be started")
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "constants_of_the_program", raising=False)
    (tmp_path / "constants_of_the_program.py").write_text("FACTOR = 3")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


@pytest.mark.parametrize("name", ["total", "make"])
def test_a_collection_or_a_function_that_returns_one(program: Path, name: str) -> None:
    found = load_collection(f"{program}:{name}")
    assert found.compute(scheduler="synchronous") == 1200
    assert "forecast_program" not in sys.modules


def test_a_program_sees_its_own_name_as_its_arguments(program: Path) -> None:
    program.write_text(
        "import sys, dask\nnames = list(sys.argv)\n"
        "def make():\n    return dask.delayed(list)(names + sys.argv)\n"
        "def leave():\n    sys.exit(4)\n"
    )
    before = list(sys.argv)
    found = load_collection(f"{program}:make").compute(scheduler="synchronous")
    assert found == [str(program)] * 2
    with pytest.raises(RequestError, match="line 6: SystemExit: 4"):
        load_collection(f"{program}:leave")
    assert sys.argv == before


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("{0}:five", "returns one; five is of type int"),
        ("{0}:fail", r"\(line 12: ValueError: no data\); what only"),
        ("{0}:nothing", r"program.py defines; the collections .* are: numbers, total"),
        ("{0}.missing:x", "the path of an existing Python program"),
        ("{0}", "FILE.py:NAME"),
        ("{0}:not-a-name", "FILE.py:NAME"),
    ],
)
def test_what_is_no_collection_is_a_fault(program: Path, target: str, text: str) -> None:
    with pytest.raises(RequestError, match=text):
        load_collection(target.format(program))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("x = 1\nx = (1", r"\(line 2: SyntaxError: '\(' was never closed\)"),
        ("import nothing_such", r"\(line 1: ModuleNotFoundError: No module named 'nothing_such'\)"),
        ("\nimport sys\nsys.exit(3)", r"\(line 3: SystemExit: 3\)"),
    ],
)
def test_a_program_that_fails_is_a_fault(program: Path, content: str, text: str) -> None:
    program.write_text(content)
    with pytest.raises(RequestError, match=text):
        load_collection(f"{program}:total")
