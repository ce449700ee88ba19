"""Only known notices of Dask, and progress, are removed from the output of a program."""

from __future__ import annotations

import logging

import pytest
from dask_notices import without_notices

HEAD = "2026-01-02 03:04:05,678 - distributed.worker - ERROR - "
HEARTBEAT = f"{HEAD}Failed to communicate with scheduler during heartbeat.\n"
CANCELLED = f"{HEAD}Async instruction for <Task cancelled name='x'> ended with CancelledError\n"
ALIVE = f"{HEAD}Worker process still alive after 4.0 seconds, killing\n"
PROGRESS = "20:48:22 [######------] start (local): 1 of 2 workers, 15 s\n"


def record_with_traceback() -> str:
    """Return a log record of a failed heartbeat whose exception has a cause."""
    try:
        try:
            raise OSError("closed")
        except OSError as error:
            raise ValueError("Unable to contact: the scheduler") from error
    except ValueError as error:
        record = logging.LogRecord(
            "distributed.worker", logging.ERROR, "", 0, HEARTBEAT[len(HEAD) : -1], (),
            (ValueError, error, error.__traceback__),
        )  # fmt: skip
    form = logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s")
    return form.format(record) + "\n"


@pytest.mark.parametrize("notice", [HEARTBEAT, CANCELLED, ALIVE, record_with_traceback(), PROGRESS])
def test_other_text_beside_a_notice_is_kept(notice: str) -> None:
    for before, after in [
        ("", ""),
        ("", "Segmentation fault\n"),
        ("warning: x\n", "\nValueError: of the program\n"),
        ("", "Traceback\n  of another kind\n"),
        (f"{HEAD}Removing worker\n", f"  {HEAD}indented\n{HEAD}Removing worker\n"),
        ("", "Traceback (most recent call last):\n" if "Traceback" in notice else "cut\n"),
    ]:
        assert without_notices(before + notice + after) == before + after
        assert without_notices(before + notice + notice + after) == before + after


def test_other_records_are_kept_with_their_tracebacks() -> None:
    other = record_with_traceback().replace("during heartbeat", "at the start")
    assert without_notices(other) == other
    # Text that only mentions a notice is kept.
    assert without_notices(f"said: {CANCELLED}") == f"said: {CANCELLED}"
