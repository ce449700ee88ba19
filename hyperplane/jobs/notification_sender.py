"""Send notifications in threads, so that no job waits for a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from hyperplane.jobs import notifications
from hyperplane.jobs.notifications import Notification

#: Most notifications that are sent at the same time; others wait, in the order of their events.
_MAX_AT_ONCE = 8


class NotificationSender:
    """Send notifications in a few threads."""

    def __init__(self) -> None:
        # Not the executor of the event loop, whose end waits for its threads: a supervisor that is
        # replaced sends the rest while its successor runs the jobs.
        self._pool = ThreadPoolExecutor(_MAX_AT_ONCE, "hyperplane-notifications")
        self._unsent: set[Future[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether notifications are not sent yet."""
        self._unsent = {each for each in self._unsent if not each.done()}
        return bool(self._unsent)

    def send(
        self, notification: Notification, environment: Mapping[str, str], targets: Iterable[str]
    ) -> None:
        """Send a notification to all targets without waiting for it.

        The arguments are those of :func:`hyperplane.jobs.notifications.notify`.
        """
        sending = self._pool.submit(
            notifications.notify, notification, dict(environment), tuple(targets)
        )
        self._unsent.add(sending)

    def close(self) -> None:
        """Wait until all notifications are sent, each of which has a time limit."""
        self._pool.shutdown()
