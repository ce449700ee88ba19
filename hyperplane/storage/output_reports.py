"""Reports of saved outputs to the job of whose step this process is a part."""

from __future__ import annotations

from hyperplane.core.artifact_reports import report_artifact
from hyperplane.objectstore.redaction import redact_url
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult


def report_output(request: SaveRequest, result: SaveResult, *, folder: bool) -> None:
    """Report a saved output, if there is such a job.

    ``folder`` is whether the output is a folder instead of one file.
    """
    if request.target.store.protocol == "memory":
        return  # it ends with this process
    report_artifact(
        request.kind,
        url=result.url if request.target.store.local else redact_url(result.url),
        format=request.format,
        size=result.nbytes,
        rows=result.rows,
        files=result.files,
        # Its figures are those of one shard.
        shard=None if request.shard is None else request.shard[0],
        folder=folder,
        local=request.target.store.local,
    )
