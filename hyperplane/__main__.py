"""The command line, for ``python -m hyperplane``."""

from hyperplane.cli import main

if __name__ == "__main__":
    main()
