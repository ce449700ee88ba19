"""Files that tasks read, in a folder of a bucket of Cloud Storage."""

from __future__ import annotations

from hyperplane.platforms.gcp.errors import DENIED, NOT_FOUND, GcpRequestError
from hyperplane.platforms.gcp.job_status import parse_time
from hyperplane.platforms.gcp.session import GcpSession
from hyperplane.platforms.object_staging import ObjectStaging, StagingFolder

#: Statuses of an answer about an object that may be missing: without the permission to list the
#: bucket, Cloud Storage answers 403.
_MAY_BE_MISSING = {DENIED, NOT_FOUND}
#: Status of the answer for a bucket that exists, such as one that another request has created.
_CONFLICT = 409


class GcsStaging(ObjectStaging):
    """Uploads objects to a staging folder in Cloud Storage; raises GcpError.

    Parameters
    ----------
    session : GcpSession
        Session of the requests.
    folder : StagingFolder
        The folder.
    create_bucket : bool
        Whether an upload creates the bucket if it is missing.
    """

    def __init__(
        self, session: GcpSession, folder: StagingFolder, *, create_bucket: bool = False
    ) -> None:
        super().__init__(folder)
        self._session, self._creates_bucket = session, create_bucket

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        try:
            self._insert(key, content)
        except GcpRequestError as error:
            if error.status != NOT_FOUND or not self._creates_bucket:
                raise
            self._create_bucket()
            self._insert(key, content)

    def _create_bucket(self) -> None:
        """Create the bucket in the region of the jobs, without public access."""
        access = {
            "uniformBucketLevelAccess": {"enabled": True},
            "publicAccessPrevention": "enforced",
        }
        body = {
            "name": self.folder.bucket,
            "location": self._session.region,
            "iamConfiguration": access,
        }
        try:
            self._session.call(
                "storage", "buckets.insert", project=self._session.project(), body=body
            )
        except GcpRequestError as error:
            if error.status != _CONFLICT:
                raise

    def _insert(self, key: str, content: bytes) -> None:
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
