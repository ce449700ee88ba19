"""``python -m hyperplane.jobs.runners.item PROGRAM ...``: give a pod its item, and be the program.

An indexed pod knows its number and nothing else, so what is run for each of several values begins
here.
"""

from __future__ import annotations

import json
import os
import sys

#: All items, as JSON.
ITEMS = "HYPERPLANE_JOB_ITEMS"
# The names stand in hyperplane.jobs.environment, too, which takes long to import.
_PARAMETERS, _ITEM = "HYPERPLANE_JOB_PARAMETERS", "HYPERPLANE_JOB_PARAMETER_ITEM"


def main() -> None:
    """Set what depends on the item, and become the program."""
    item = json.loads(os.environ.pop(ITEMS))[int(os.environ["JOB_COMPLETION_INDEX"])]
    os.environ[_ITEM] = item
    os.environ.setdefault("ITEM", item)
    parameters = json.loads(os.environ[_PARAMETERS])
    os.environ[_PARAMETERS] = json.dumps({**parameters, "item": item}, ensure_ascii=False)
    program = sys.argv[1:]
    try:
        os.execvp(program[0], program)  # noqa: S606 - a list of arguments, and no shell
    except OSError as error:
        sys.stderr.write(f"{program[0]}: {error.strerror}\n")
        # As a shell would say it.
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
