"""Files that tasks read, in a folder of an S3 bucket."""

from __future__ import annotations

import time

from hyperplane.platforms.aws.errors import AwsRequestError
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.object_staging import ObjectStaging, StagingFolder

#: Statuses of an answer about an object that may be missing. Without the permission to list the
#: bucket, S3 answers 403; with expired credentials 400. The answers have no body with the reason,
#: so the request that writes the object is sent, whose answer has one.
_MAY_BE_MISSING = {400, 403, 404}
#: Error codes of a bucket that is missing, and of one that a request at the same time has created.
_NO_BUCKET, _OWN_BUCKET = "NoSuchBucket", "BucketAlreadyOwnedByYou"
#: The region that a creation must not name.
_DEFAULT_REGION = "us-east-1"
#: Requests after which a new bucket must be visible, and the seconds between them.
_ATTEMPTS, _PAUSE = 5, 1.0


class S3Staging(ObjectStaging):
    """Uploads objects to a staging folder in S3; raises AwsError.

    Parameters
    ----------
    session : AwsSession
        Session of the requests.
    folder : StagingFolder
        The folder.
    create_bucket : bool
        Whether an upload creates the bucket if it is missing.
    """

    def __init__(
        self, session: AwsSession, folder: StagingFolder, *, create_bucket: bool = False
    ) -> None:
        super().__init__(folder)
        self._session, self._creates_bucket = session, create_bucket

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        for attempt in range(_ATTEMPTS):
            try:
                self._session.call(
                    "s3", "put_object", Bucket=self.folder.bucket, Key=key, Body=content
                )
            except AwsRequestError as error:
                is_last = attempt == _ATTEMPTS - 1
                if error.code != _NO_BUCKET or not self._creates_bucket or is_last:
                    raise
                if attempt:
                    time.sleep(_PAUSE)
                else:
                    self._create_bucket()
            else:
                return

    def _create_bucket(self) -> None:
        """Create the bucket, without public access, which is the default of S3."""
        region = self._session.region()
        place = {"CreateBucketConfiguration": {"LocationConstraint": region}}
        is_default = region in (None, _DEFAULT_REGION)
        request = {"Bucket": self.folder.bucket, **({} if is_default else place)}
        try:
            self._session.call("s3", "create_bucket", **request)
        except AwsRequestError as error:
            if error.code != _OWN_BUCKET:
                raise

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
