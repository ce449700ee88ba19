"""Files that tasks read, in a folder of an S3 bucket, named by the hash of their content."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import NamedTuple

from hyperplane.platforms.aws.errors import AwsRequestError
from hyperplane.platforms.aws.session import AwsSession

#: Statuses of an answer about an object that may be missing. Without the permission to list the
#: bucket, S3 answers 403; with expired credentials 400. The answers have no body with the reason,
#: so the request that writes the object is sent, whose answer has one.
_MAY_BE_MISSING = {400, 403, 404}
#: Age in seconds from which content is uploaded again, so that a lifecycle rule of the bucket does
#: not delete it before a job that was submitted later has started.
RENEW_SECONDS = 86_400.0


class StagingFolder(NamedTuple):
    """A folder of a bucket; ``prefix`` is empty or ends with a slash."""

    bucket: str
    prefix: str

    def key(self, *names: str) -> str:
        """Return the key of an object in the folder."""
        return self.prefix + "/".join(names)

    def content_key(self, content: bytes, suffix: str) -> str:
        """Return the key of an object with this content."""
        return self.key("content", hashlib.sha256(content).hexdigest() + suffix)

    def url(self, key: str) -> str:
        """Return the URL of an object."""
        return f"s3://{self.bucket}/{key}"


def parse_staging(url: str) -> StagingFolder:
    """Return the folder of a URL such as ``s3://bucket/folder``.

    Examples
    --------
    >>> parse_staging("s3://team/jobs").key("a", "b")
    'jobs/a/b'
    """
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    prefix = prefix.strip("/")
    return StagingFolder(bucket, f"{prefix}/" if prefix else "")


class ObjectStaging:
    """Uploads objects to a staging folder; each content at most once a day."""

    def __init__(self, session: AwsSession, folder: StagingFolder) -> None:
        self._session, self.folder = session, folder
        #: Key -> time at which it was uploaded.
        self._uploaded: dict[str, float] = {}
        self._lock = threading.Lock()

    def upload_content(self, content: bytes, suffix: str) -> str:
        """Upload content unless the bucket has it since at most a day, and return its key.

        Raises AwsError.
        """
        key = self.folder.content_key(content, suffix)
        with self._lock:  # attempts that start together have the same files
            if not _is_recent(self._uploaded.get(key, 0.0)):
                uploaded = self._time_of(key)
                if not _is_recent(uploaded):
                    self.put(key, content)
                    uploaded = time.time()
                self._uploaded[key] = uploaded
        return key

    def put(self, key: str, content: bytes) -> None:
        """Write an object. Raises AwsError."""
        self._session.call("s3", "put_object", Bucket=self.folder.bucket, Key=key, Body=content)

    def _time_of(self, key: str) -> float:
        """Return the time of the last upload of an object; 0 if there is none."""
        try:
            answer = self._session.call("s3", "head_object", Bucket=self.folder.bucket, Key=key)
        except AwsRequestError as error:
            if error.status not in _MAY_BE_MISSING:
                raise
            return 0.0
        return float(answer["LastModified"].timestamp())


def _is_recent(uploaded: float) -> bool:
    return time.time() - uploaded < RENEW_SECONDS
