"""Advice for a URL whose store needs a package that is not installed."""

from __future__ import annotations

import os

#: Protocol of fsspec -> extra of this package that installs its file system.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}


def advise_installation(error: Exception, url: object) -> str:
    """Return how to install the file system of a URL; empty if that is not what is missing.

    Examples
    --------
    >>> advise_installation(ImportError("Install s3fs to access S3"), "s3://bucket/flights.parquet")
    "pip install 'hyperplane[s3]'"
    >>> advise_installation(ValueError("no such bucket"), "s3://bucket/flights.parquet")
    ''
    """
    if not isinstance(error, ImportError) or not isinstance(url, str | os.PathLike):
        return ""
    extra = _EXTRAS.get(str(os.fspath(url)).partition("://")[0].lower(), "")
    return f"pip install 'hyperplane[{extra}]'" if extra else ""
