"""``python -m hyperplane.jobs.runners.item PROGRAM ...``: set a pod's item, run the program.

The pods of an Indexed Job differ only in their index, so the command of a step with ``foreach``
begins with this module. The name stays: rendered manifests run it in images that have another
version of hyperplane.
"""

from __future__ import annotations

import json
import os
import sys

#: Variable with all items as JSON.
ITEMS = "HYPERPLANE_JOB_ITEMS"
# Also in hyperplane.jobs.execution.step_environment, whose import is slow.
_PARAMETERS, _ITEM = "HYPERPLANE_JOB_PARAMETERS", "HYPERPLANE_JOB_PARAMETER_ITEM"


def main() -> None:
    """Set the variables of the item and replace this process by the program."""
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
        # The exit codes of a shell.
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
