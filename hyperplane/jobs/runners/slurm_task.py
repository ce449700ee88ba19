"""Former path of ``slurm/array_task.py``: queued job arrays of 0.1.0 run this file."""

import os
import runpy

if __name__ == "__main__":
    # Without the package: these jobs run with ``python -I -S``.
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    path = os.path.join(folder, "slurm", "array_task.py")  # noqa: PTH118
    runpy.run_path(path, run_name="__main__")
