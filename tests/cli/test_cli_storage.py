"""``hyperplane storage``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from terminal import Run

import hyperplane


class Locked(MemoryFileSystem):  # type: ignore[misc]
    """File system that needs a password and records its options."""

    protocol = "locked"
    cachable = False
    received_options: list[dict[str, Any]] = []  # noqa: RUF012
    store: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.received_options.append(options)
        if options.get("password") != "sesame":
            raise PermissionError(13, f"wrong password in {options}")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.rpartition("://")[2].strip("/")


@pytest.fixture
def locked() -> Iterator[list[dict[str, Any]]]:
    fsspec.register_implementation("locked", Locked, clobber=True)
    yield Locked.received_options
    Locked.received_options.clear()


def leftover(folder: Path) -> Path:
    hyperplane.save({"a": 1}, folder / "a.json")
    draft = folder / ".a.json.0123456789ab.part"
    draft.write_text("half")
    return draft


def test_leftovers_are_shown_and_removed(run: Run, tmp_path: Path) -> None:
    draft = leftover(tmp_path)
    seen = run("storage", "clean", str(tmp_path / "a.json"), "--older-than", "0s", "--dry-run")
    assert (seen.code, draft.exists()) == (0, True)
    assert f"  would remove {draft.name}\n" in seen.out
    assert seen.out.endswith("dry run: nothing was removed\n")
    answer = run("storage", "clean", str(tmp_path / "a.json"), "--older-than=0s", "--json")
    assert (answer.json[0]["removed"], answer.json[0]["dry_run"]) == ([draft.name], False)
    assert not draft.exists()


def test_a_name_where_nothing_was_saved_is_an_error(run: Run, tmp_path: Path) -> None:
    draft = leftover(tmp_path)
    names = [str(tmp_path / name) for name in ("typo", "a.json")]
    seen = run("storage", "clean", *names, "--older-than=0s")
    assert (seen.code, draft.exists()) == (2, False)
    assert f"{names[1]}: 1 leftover file, 4 B\n" in seen.out
    assert "typo" not in seen.out
    assert f"url = {names[0]!r}: expected a path or URL where something was saved" in seen.err
    answer = run("storage", "clean", names[0], "--json")
    assert answer.code == 2
    assert answer.json["faults"][0]["where"] == "url"
    draft = leftover(tmp_path)
    answer = run("storage", "clean", *names, "--older-than=0s", "--json")
    assert (answer.code, draft.exists()) == (2, False)
    assert [(report["found"], report["removed"]) for report in answer.json] == [
        (False, []),
        (True, [draft.name]),
    ]


def test_options_are_passed_to_the_file_system(run: Run, locked: list[dict[str, Any]]) -> None:
    for name in "bc":
        hyperplane.save(b"x", f"locked://a/{name}", password="sesame")
    locked.clear()
    answer = run(
        "storage", "clean", "locked://a/b", "locked://a/c", "--option", "password=sesame",
        "--option", 'client={"retries": 3, "on": true}', "--option", "project=a=b",
        "--option", "number=5", "--option", 'text="5"',
    )  # fmt: skip
    assert answer.code == 0
    expected = {
        "password": "sesame",
        "client": {"retries": 3, "on": True},
        "project": "a=b",
        "number": 5,
        "text": "5",
    }
    assert all(options == expected for options in locked)
    assert len(locked) >= 2


@pytest.mark.usefixtures("locked")
def test_values_of_options_are_never_shown(run: Run) -> None:
    for arguments in (
        ["--option", "password=s3cret"],
        ["--option", "s3cret"],
        ["--option", "=s3cret"],
        ["--option", "a-b=s3cret"],
        ["--option", "token=s3cret", "--option", "token=s3cret"],
        ["--option", 'token={"key": "s3cret"}'],
    ):
        answer = run("storage", "clean", "locked://a/b", *arguments)
        assert answer.code != 0
        assert answer.err
        assert "s3cret" not in answer.out + answer.err


def test_nothing_is_removed_if_a_later_url_is_wrong(run: Run, tmp_path: Path) -> None:
    draft = leftover(tmp_path)
    answer = run("storage", "clean", str(tmp_path / "a.json"), "nothing://x", "--older-than=0s")
    assert (answer.code, draft.exists()) == (2, True)
    assert "nothing://x" in answer.err


def test_all_faults_of_the_options_are_reported_together(run: Run) -> None:
    answer = run(
        "storage", "clean", "x", "--option", "nothing", "--option", "a=1", "--option", "a=2",
        "--older-than=long",
    )  # fmt: skip
    assert "3 faults" in answer.err
    assert "older_than = 'long'" in answer.err
    assert "number 1" in answer.err
    assert "a is given twice" in answer.err
