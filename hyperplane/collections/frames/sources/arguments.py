"""Arguments that are rows already, where the places of files are expected."""

from __future__ import annotations

import os
from typing import Any

from hyperplane.errors import Fault
from hyperplane.units import is_iterable


def find_urls_faults(urls: Any) -> list[Fault]:
    """One fault for what is rows already and not the places of files."""
    if isinstance(urls, (str, os.PathLike)) or not is_iterable(urls):
        return []
    if not (hasattr(urls, "columns") or hasattr(urls, "dtype") or hasattr(urls, "schema")):
        return []
    allowed = "a path, glob or URL, or a list of them"
    advice = (
        "it holds rows already: leave read out, or for a pandas frame write "
        "dask.dataframe.from_pandas(df, npartitions=...)"
    )
    return [Fault("urls", f"a {type(urls).__name__}", allowed, advice)]
