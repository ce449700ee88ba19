"""Reports of runs: one HTML file with pictures, tables and advice, to send to others.

``hyperplane report`` and the functions of this module write them from the records of
:mod:`hyperplane.history`.
"""

from hyperplane.reports.run_report import render_report, save_report

__all__ = ["render_report", "save_report"]


def __dir__() -> list[str]:
    return list(__all__)
