"""Former path of ``retrying.py``, which Slurm scripts rendered by 0.1.0 run by its name."""

import os
import runpy

if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    runpy.run_path(os.path.join(folder, "retrying.py"), run_name="__main__")  # noqa: PTH118
