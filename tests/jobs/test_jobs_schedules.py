"""Schedules: cron expressions, crontab lines, and the crontab."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperplane.errors import RequestError
from hyperplane.jobs import schedules
from hyperplane.jobs.cron import CronExpression, parse_cron
from hyperplane.jobs.schedules import Schedule, crontab_line

pytestmark = pytest.mark.process

CRONTAB = """#!{python}
import pathlib, sys
file = pathlib.Path({place!r})
if (file.parent / "broken").exists():
    sys.exit("crontab: you (other) are not allowed to use this program")
if sys.argv[1:] == ["-l"]:
    if not file.exists():
        sys.exit("no crontab for other")
    sys.stdout.write(file.read_text())
elif sys.argv[1:] == ["-"]:
    file.write_text(sys.stdin.read())
else:
    sys.exit(2)
"""


@pytest.fixture
def crontab(tmp_path, monkeypatch):
    """The crontab of a user, with a program in place of the system's."""
    program = tmp_path / "bin" / "crontab"
    program.parent.mkdir()
    place = tmp_path / "crontab"
    program.write_text(CRONTAB.format(python=sys.executable, place=str(place)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return place


def nightly(name="nightly", cron="0 2 * * *", **more):
    return Schedule(name, cron, ("submit", "a b.yaml"), "/data", **more)


@pytest.mark.parametrize(
    "text",
    [
        "* * * * *",
        "*/30 * * * *",
        "0,15,30-59/5 0-6 1,15 jan,JUN-aug mon-fri",
        "59 23 31 12 7",
        "  5\t4  * * sun ",
        "0 0 29 2 *",
        "0 0 31 4 mon",
        "*/59 */23 */30 */11 */7",
    ],
)
def test_expressions_that_cron_accepts_are_accepted(text):
    assert parse_cron(text) == CronExpression(" ".join(text.split()))


@pytest.mark.parametrize(
    ("text", "read"), [("*/30***", "*/30 * * * *"), ("*/5****", "*/5 * * * *")]
)
def test_fields_without_blanks_are_read_with_a_warning(text, read):
    expression = parse_cron(text)
    assert expression.text == read
    assert repr(text) in expression.warning
    assert repr(read) in expression.warning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("0 0 * * * *", "five fields"),
        ("@daily", "write '0 0 * * *'"),
        ("60 * * * *", "minute = '60': expected numbers from 0 to 59"),
        ("* 24 * * *", "hour = '24'"),
        ("* * 0 * *", "day of the month = '0'"),
        ("* * * 13 *", "month = '13'"),
        ("* * * foo *", "or jan, feb"),
        ("* * * * 8", "day of the week = '8'"),
        ("* 22-2 * * *", "write 22-23,0-2"),
        ("5/15 * * * *", "write 5-59/15"),
        ("*/0 * * * *", "a step from 1 to 59"),
        ("*/90 * * * *", "a step from 1 to 59"),
        ("*-5 * * * *", "write *"),
        ("-1 * * * *", "minute = '-1'"),
        ("1,,2 * * * *", "minute = ''"),
        ("0 0 L * *", "'L'"),
        ("0 0 30 2 *", "a day 30"),
        ("0 0 31 4,6,9,11 *", "a day 31"),
        ("* * * * *; rm -r x", "five fields"),
        ("² * * * *", "minute"),
    ],
)
def test_expressions_that_cron_refuses_are_refused_with_advice(text, message):
    with pytest.raises(RequestError) as caught:
        parse_cron(text)
    assert message in str(caught.value)


def test_all_faults_of_an_expression_are_reported_together():
    with pytest.raises(RequestError) as caught:
        parse_cron("60 24 32 13 8")
    assert len(caught.value.faults) == 5


@given(st.text("0123456789*/-,abcdjmnostu ³", max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        expression = parse_cron(text)
    except RequestError:
        return
    assert len(expression.text.split()) == 5
    assert parse_cron(expression.text) == CronExpression(expression.text)


def run_as_cron(line):
    """What cron does with a line: five fields, % is a line break unless escaped, and /bin/sh."""
    command = line.split(None, 5)[5]
    assert "%" not in command.replace("\\%", "")
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/"}
    done = subprocess.run(
        ["/bin/sh", "-c", command.replace("\\%", "%")],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("value", ["50%", "$(touch x)", "it's", "a;b", "# no comment", "ü \\ \\%"])
def test_cron_runs_the_command_of_a_line_unchanged(value, tmp_path):
    folder = tmp_path / "50% of $it's"
    folder.mkdir()
    program = "import os, sys; print(os.getcwd(), os.environ['PLACE'], *sys.argv[1:], sep='|')"
    argv = (sys.executable, "-c", program, value)
    line = crontab_line(Schedule("n", "* * * * *", argv, str(folder), (("PLACE", value),)))
    assert run_as_cron(line) == f"{folder}|{value}|{value}\n"
    logged = Schedule("n", "* * * * *", argv, str(folder), (("PLACE", "x"),), str(folder / "log"))
    assert run_as_cron(crontab_line(logged)) == ""
    assert run_as_cron(crontab_line(logged)) == ""
    assert (folder / "log").read_text() == f"{folder}|x|{value}\n" * 2


def test_schedules_that_a_crontab_line_cannot_represent_are_refused():
    with pytest.raises(RequestError, match="line break"):
        crontab_line(Schedule("n", "* * * * *", ("a", "b\nc"), "/"))
    with pytest.raises(RequestError, match="998 characters"):
        crontab_line(Schedule("n", "* * * * *", ("a", "b" * 1000), "/"))
    # The comment with the name is a part of the command for cron.
    longest = 998 - len("cd / && a  # hyperplane schedule n")
    line = crontab_line(Schedule("n", "* * * * *", ("a", "b" * longest), "/"))
    assert len(line) == 998 + len("* * * * * ")
    with pytest.raises(RequestError, match="998 characters"):
        crontab_line(Schedule("n", "* * * * *", ("a", "b" * (longest + 1)), "/"))


def test_a_schedule_is_installed_replaced_and_removed_and_nothing_else_is_touched(crontab):
    others = "# mine\nMAILTO=me\n\n5 4 * * * backup # hyperplane\n# hyperplane schedule old\n"
    crontab.write_text(others)
    assert not schedules.install(nightly())
    assert crontab.read_text() == f"{others}{crontab_line(nightly())}\n"
    assert not schedules.install(nightly("night"))
    assert schedules.install(nightly(cron="0 3 * * *"))
    assert list(schedules.read_installed()) == ["night", "nightly"]
    assert schedules.read_installed()["nightly"].startswith("0 3 * * * ")
    schedules.remove("nightly")
    schedules.remove("night")
    assert crontab.read_text() == others
    with pytest.raises(RequestError, match="in the crontab: none"):
        schedules.remove("nightly")


def test_a_user_without_a_crontab_gets_one(crontab):
    assert schedules.read_installed() == {}
    schedules.install(nightly())
    assert crontab.read_text() == crontab_line(nightly()) + "\n"


def test_a_crontab_that_cannot_be_read_is_not_written(crontab):
    crontab.write_text("5 4 * * * backup\n")
    (crontab.parent / "broken").touch()
    with pytest.raises(RequestError, match="not allowed to use this program"):
        schedules.install(nightly())
    assert crontab.read_text() == "5 4 * * * backup\n"


def test_a_machine_without_cron_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequestError, match="a machine with cron"):
        schedules.install(nightly())


def test_programs_that_install_at_once_lose_nothing(crontab):
    threads = [
        threading.Thread(target=schedules.install, args=(nightly(f"n{i}"),)) for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(schedules.read_installed()) == [f"n{i}" for i in range(6)]
