"""Files that tasks read, in a folder of an S3 bucket."""

from __future__ import annotations

from hyperplane.platforms.aws.errors import AwsRequestError
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.object_staging import ObjectStaging, StagingFolder

#: Statuses of an answer about an object that may be missing. Without the permission to list the
#: bucket, S3 answers 403; with expired credentials 400. The answers have no body with the reason,
#: so the request that writes the object is sent, whose answer has one.
_MAY_BE_MISSING = {400, 403, 404}


class S3Staging(ObjectStaging):
    """Uploads objects to a staging folder in S3; raises AwsError."""

    def __init__(self, session: AwsSession, folder: StagingFolder) -> None:
        super().__init__(folder)
        self._session = session

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        self._session.call("s3", "put_object", Bucket=self.folder.bucket, Key=key, Body=content)

    def time_of(self, key: str) -> float:
        """Return the time of the last upload of an object; 0 if there is none."""
        try:
            answer = self._session.call("s3", "head_object", Bucket=self.folder.bucket, Key=key)
        except AwsRequestError as error:
            if error.status not in _MAY_BE_MISSING:
                raise
            return 0.0
        return float(answer["LastModified"].timestamp())

    def read(self, key: str) -> bytes:
        """Return the content of an object."""
        answer = self._session.call("s3", "get_object", Bucket=self.folder.bucket, Key=key)
        content: bytes = answer["Body"].read()
        return content
