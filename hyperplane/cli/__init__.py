"""The command line: one file for each noun, and nothing here that the library does not do.

A command reads its options, calls the function of the same name and shows what comes back. The
exit code is 0 when all is well, 1 when something failed, and 2 when the request, the
configuration or the command line itself cannot be used.
"""

from hyperplane.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; the entry point ``hyperplane``."""
    app(prog_name="hyperplane")
