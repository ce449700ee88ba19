"""Small documented helpers."""

from __future__ import annotations

import os


def is_jhub() -> bool:
    """Whether this is a session rather than a pipeline job.

    Returns
    -------
    bool
        True unless the variable ``HYPERPLANE_JOB_ID`` names a job.

    Examples
    --------
    >>> is_jhub()
    True
    """
    return os.environ.get("HYPERPLANE_JOB_ID", "__local_test") == "__local_test"
