"""Files that tasks read, in a folder of a bucket, named by the hash of their content."""

from __future__ import annotations

import hashlib
import threading
import time
from abc import ABC, abstractmethod
from typing import NamedTuple

#: Age in seconds from which content is uploaded again, so that a lifecycle rule of the bucket does
#: not delete it before a job that was submitted later has started.
RENEW_SECONDS = 86_400.0


class StagingFolder(NamedTuple):
    """A folder of a bucket; ``prefix`` is empty or ends with a slash."""

    scheme: str
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
        return f"{self.scheme}://{self.bucket}/{key}"


def parse_staging(url: str) -> StagingFolder:
    """Return the folder of a URL such as ``s3://bucket/folder``.

    Examples
    --------
    >>> parse_staging("s3://team/jobs").key("a", "b")
    'jobs/a/b'
    >>> parse_staging("gs://team").url("a")
    'gs://team/a'
    """
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    return StagingFolder(scheme, bucket, f"{prefix}/" if prefix else "")


class ObjectStaging(ABC):
    """Uploads objects to a staging folder; each content at most once a day.

    Subclasses send the requests, and raise the errors of their platform.
    """

    def __init__(self, folder: StagingFolder) -> None:
        self.folder = folder
        #: Key -> time at which it was uploaded.
        self._uploaded: dict[str, float] = {}
        self._lock = threading.Lock()

    def upload_content(self, content: bytes, suffix: str) -> str:
        """Upload content unless the bucket has it since at most a day, and return its key."""
        key = self.folder.content_key(content, suffix)
        with self._lock:  # attempts that start together have the same files
            if not _is_recent(self._uploaded.get(key, 0.0)):
                uploaded = self.time_of(key)
                if not _is_recent(uploaded):
                    self.put(key, content)
                    uploaded = time.time()
                self._uploaded[key] = uploaded
        return key

    @abstractmethod
    def put(self, key: str, content: bytes) -> None:
        """Write an object."""

    @abstractmethod
    def time_of(self, key: str) -> float:
        """Return the time of the last upload of an object; 0 if there is none."""


def _is_recent(uploaded: float) -> bool:
    return time.time() - uploaded < RENEW_SECONDS
