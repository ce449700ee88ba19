"""Time in which a request of a submission is repeated."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from hyperplane.core.errors.platforms import PlatformError

_log = logging.getLogger(__name__)
#: Seconds for which a submission is retried, and the longest pause between two requests.
SUBMIT_SECONDS, MAX_PAUSE_SECONDS = 300.0, 30.0


class ServiceErrors(NamedTuple):
    """Name of a service in messages, and what its errors mean.

    Parameters
    ----------
    system : str
        Name of the service.
    credentials : type
        Class of errors of credentials, which are loaded again for the next request, such as after
        a login.
    is_retryable : callable
        Whether the same request may succeed later.
    is_invalid : callable
        Whether the service refuses the request itself, not for a permission or its load.
    is_unconfirmed : callable
        Whether the service may have carried out the request in spite of the error.
    """

    system: str
    credentials: type[PlatformError]
    is_retryable: Callable[[Any], bool]
    is_invalid: Callable[[Any], bool]
    is_unconfirmed: Callable[[Any], bool]


class RetryTime:
    """Time in which a request is repeated, with growing pauses."""

    def __init__(self, errors: ServiceErrors) -> None:
        self._errors = errors
        self._until, self._pause = time.monotonic() + SUBMIT_SECONDS, 1.0
        self._reported = ""

    async def wait_after(self, error: PlatformError) -> None:
        """Wait before the next request; raise OSError if there is to be none.

        Its errno is EPERM for a refusal or credentials that stay invalid, and EAGAIN otherwise.
        """
        system = self._errors.system
        is_login = isinstance(error, self._errors.credentials)
        if not is_login and not self._errors.is_retryable(error):
            raise OSError(errno.EPERM, str(error), system) from error
        if time.monotonic() > self._until:
            number = errno.EPERM if is_login else errno.EAGAIN
            raise OSError(number, str(error), system) from error
        if str(error) != self._reported:
            self._reported = str(error)
            _log.warning("a request of a submission failed and is repeated: %s", error)
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)
