"""What the resolvers of one request share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class RequestContext:
    """Context of one request.

    Parameters
    ----------
    folder : Path
        Folder that paths of pipelines are relative to.
    warnings : list of str
        Possible mistakes in the jobs that were submitted, for the ``extensions`` of the response.
    """

    folder: Path
    warnings: list[str] = field(default_factory=list)
