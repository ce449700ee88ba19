"""Check of the ``urls`` argument of ``read``."""

from __future__ import annotations

import os
from typing import Any

from hyperplane.core.errors import Fault
from hyperplane.core.units import is_iterable


def find_urls_faults(urls: Any) -> list[Fault]:
    """Return a fault if ``urls`` is a dataframe, array or table instead of file paths."""
    if isinstance(urls, (str, os.PathLike)) or not is_iterable(urls):
        return []
    if not (hasattr(urls, "columns") or hasattr(urls, "dtype") or hasattr(urls, "schema")):
        return []
    allowed = "a path, glob or URL, or a list of them"
    advice = (
        "it is already loaded: use it without read, or convert a pandas frame with "
        "dask.dataframe.from_pandas(df, npartitions=...)"
    )
    return [Fault("urls", f"a {type(urls).__name__}", allowed, advice)]
