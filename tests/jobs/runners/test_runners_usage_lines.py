"""Lines of the logs of containers with what the programs of steps took."""

import pytest

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.run_recording import StepUsage, read_usage
from hyperplane.jobs.runners.remote_attempt_files import RemoteAttemptFiles
from hyperplane.jobs.runners.usage_lines import split_usage, sum_usage

ONE, TWO = "4096 0.250 1.000 10 20", "8192 1.750 0.500 1 2"


@pytest.mark.parametrize(
    ("log", "kept", "figures"),
    [
        ("", "", []),
        ("1\n2", "1\n2", []),
        ("1\n\nhyperplane-usage:{0}\n", "1\n", [ONE]),
        ("50 %\nhyperplane-usage:{0}\n", "50 %\n", [ONE]),
        ("\nhyperplane-usage:{0}", "", [ONE]),
        ("1\r\n\r\nhyperplane-usage:{0}\r\n2\r\n", "1\r\n2\r\n", [ONE]),
        # An empty line that the program has printed is kept.
        ("1\n\n\nhyperplane-usage:{0}\n", "1\n\n", [ONE]),
        # The order of lines in Cloud Logging is not that of the program.
        ("hyperplane-usage:{0}\n1\n", "1\n", [ONE]),
        (
            "1\n\nhyperplane-usage:{0}\nw-0 | 2\nw-0 | \nw-0 | hyperplane-usage:{1}\n",
            "1\nw-0 | 2\n",
            [ONE, TWO],
        ),
        ("trial 3 | a\ntrial 3 | hyperplane-usage:{0}\n", "trial 3 | a\n", [ONE]),
        # Texts of a program that are no figures.
        ("say hyperplane-usage:{0}\n", "say hyperplane-usage:{0}\n", []),
        ("hyperplane-usage:nan inf 1 2 3\n", "hyperplane-usage:nan inf 1 2 3\n", []),
        ("hyperplane-usage:\n", "hyperplane-usage:\n", []),
        ("hyperplane-usage:-1 0.250 1.000 1 2\n", "hyperplane-usage:-1 0.250 1.000 1 2\n", []),
    ],
)
def test_lines_with_figures_are_not_part_of_the_log(
    log: str, kept: str, figures: list[str]
) -> None:
    found = split_usage(log.format(ONE, TWO).encode())
    assert found == (kept.format(ONE, TWO).encode(), [each.encode() for each in figures])


def test_several_machines_have_the_largest_memory_and_the_sums() -> None:
    assert sum_usage([ONE.encode()]) == ONE
    assert sum_usage([ONE.encode(), TWO.encode()]) == "8192 2.000 1.000 11 22"


def test_figures_of_a_log_are_those_of_the_attempt(tmp_path) -> None:
    command = AttemptCommand(("true",), {}, ".", tmp_path / "attempt-1")
    files = RemoteAttemptFiles(command, "the service")
    command.file(".log").write_text("1\n")
    files.extract_usage()
    assert read_usage(command) == StepUsage()  # unknown
    command.file(".log").write_text(f"1\n\nhyperplane-usage:{ONE}\n")
    files.extract_usage()
    assert read_usage(command) == StepUsage(4096, 0.25, 1.0, 10, 20)
    assert command.file(".log").read_text() == "1\n"
