"""Reports of runs and jobs: one HTML file with pictures, tables and advice, to send to others.

``hyperplane report`` and the functions of this module write them from the records of
:mod:`hyperplane.history`.
"""

from hyperplane.reports.job_report import render_job_report, save_job_report
from hyperplane.reports.run_report import render_report, save_report

__all__ = ["render_job_report", "render_report", "save_job_report", "save_report"]


def __dir__() -> list[str]:
    return list(__all__)
