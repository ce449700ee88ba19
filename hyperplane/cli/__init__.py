"""The command line: one module for each noun; the logic is in the library.

A command parses its options, calls the function of the same name and prints the result. The exit
code is 0 on success, 1 on a failure, and 2 if the request, the configuration or the command line
is invalid.
"""

from hyperplane.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; the entry point ``hyperplane``."""
    app(prog_name="hyperplane")
