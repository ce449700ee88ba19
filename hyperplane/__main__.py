"""The command line, for ``python -m hyperplane``."""

from hyperplane.cli import app

if __name__ == "__main__":
    app(prog_name="python -m hyperplane")
