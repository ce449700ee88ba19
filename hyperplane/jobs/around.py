"""Former path of ``step_wrapper.py``: batch jobs that 0.1.0 has queued run this file."""

import os
import runpy

if __name__ == "__main__":
    # Without the package: these jobs run with ``python -I -S``.
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    runpy.run_path(os.path.join(folder, "step_wrapper.py"), run_name="__main__")  # noqa: PTH118
