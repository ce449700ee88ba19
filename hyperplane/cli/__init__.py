"""The command line: one module for each noun; the logic is in the library.

A command parses its options, calls a function of the library and prints the result. The exit
code is 0 on success, 1 on a failure, and 2 if the request, the configuration or the command line
is invalid; commands that wait for a job also exit with 124 (timed out) and 130 (cancelled or
interrupted), and ``job logs --follow`` with 130.
"""

from hyperplane.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; the entry point ``hyperplane``."""
    app(prog_name="hyperplane")
