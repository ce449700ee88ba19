"""Former path of ``exporters/retry_wrapper.py``: Slurm scripts of 0.1.0 run this file."""

import os
import runpy

if __name__ == "__main__":
    jobs = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    path = os.path.join(jobs, "exporters", "retry_wrapper.py")  # noqa: PTH118
    runpy.run_path(path, run_name="__main__")
