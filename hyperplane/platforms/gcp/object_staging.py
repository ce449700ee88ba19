"""Files that tasks read, in a folder of a bucket of Cloud Storage."""

from __future__ import annotations

from hyperplane.platforms.gcp.errors import DENIED, NOT_FOUND, GcpRequestError
from hyperplane.platforms.gcp.job_status import parse_time
from hyperplane.platforms.gcp.session import GcpSession
from hyperplane.platforms.object_staging import ObjectStaging, StagingFolder

#: Statuses of an answer about an object that may be missing: without the permission to list the
#: bucket, Cloud Storage answers 403.
_MAY_BE_MISSING = {DENIED, NOT_FOUND}


class GcsStaging(ObjectStaging):
    """Uploads objects to a staging folder in Cloud Storage; raises GcpError."""

    def __init__(self, session: GcpSession, folder: StagingFolder) -> None:
        super().__init__(folder)
        self._session = session

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        from googleapiclient.http import MediaInMemoryUpload

        self._session.call(
            "storage",
            "objects.insert",
            bucket=self.folder.bucket,
            name=key,
            media_body=MediaInMemoryUpload(content, mimetype="application/octet-stream"),
        )

    def time_of(self, key: str) -> float:
        """Return the time of the last upload of an object; 0 if there is none."""
        try:
            answer = self._session.call(
                "storage", "objects.get", bucket=self.folder.bucket, object=key, fields="updated"
            )
        except GcpRequestError as error:
            if error.status not in _MAY_BE_MISSING:
                raise
            return 0.0
        return parse_time(answer.get("updated"), "storage objects.get")

    def read(self, key: str) -> bytes:
        """Return the content of an object."""
        request = {"bucket": self.folder.bucket, "object": key}
        content: bytes = self._session.call("storage", "objects.get_media", **request)
        return content
