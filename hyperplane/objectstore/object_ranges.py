"""List very many objects of a bucket by concurrent requests.

A server returns 1,000 objects for a request, and the next 1,000 only for a token of that page. So a
listing that does not end with a page is divided while threads are idle, at folders or at numbers in
names, and the ranges between are listed at the same time. Each key is in one range, wherever the
ranges end: where they end decides on the time only.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from hyperplane.objectstore.key_numbers import guess_bounds
from hyperplane.objectstore.listing import MAX_THREADS
from hyperplane.objectstore.object_pages import ObjectLister, Page, list_page

#: Pages that a range has, as far as is known, if it is divided.
_MIN_PAGES = 4


class Request(Protocol):
    """One request of a listing."""

    def send(self, lister: ObjectLister, idle: int) -> tuple[Page, Sequence[Request]]:
        """Return the objects that are listed, and what to request next, for idle threads, too."""


def iterate_pages(lister: ObjectLister, first: Request) -> Iterator[Page]:
    """Yield the objects of a request and of all that follow it, in pages without order."""
    page, following = first.send(lister, MAX_THREADS - 1)
    pages, waiting = [page], [*following]
    pending: set[Future[tuple[Page, Sequence[Request]]]] = set()
    while True:
        while waiting and len(pending) < MAX_THREADS:
            idle = MAX_THREADS - len(pending) - len(waiting)
            pending.add(_send_in_thread(waiting.pop(), lister, idle))
        yield from pages  # while the next ones are requested
        if not pending:
            return
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        results = [each.result() for each in done]
        pages = [page for page, _ in results]
        waiting += [request for _, following in results for request in following]


def _send_in_thread(
    request: Request, lister: ObjectLister, idle: int
) -> Future[tuple[Page, Sequence[Request]]]:
    """Send a request in a thread that the end of the program does not wait for.

    It waits for the threads of a ThreadPoolExecutor: after Ctrl-C for minutes, if a server does not
    respond.
    """
    result: Future[tuple[Page, Sequence[Request]]] = Future()

    def send() -> None:
        try:
            result.set_result(request.send(lister, idle))
        except BaseException as error:  # noqa: BLE001 - raised where the result is read
            result.set_exception(error)

    threading.Thread(target=send, name="hyperplane-listing", daemon=True).start()
    return result


@dataclass(frozen=True)
class RangeRequest:
    """Objects with a prefix and keys after ``start``, up to and with ``end``, if these are given.

    ``select`` returns those objects of a page that are listed. ``token`` is that of the next page,
    and ``last`` the last key of the page before. If a range cannot be divided, another attempt is
    made after ``pause`` pages, and the next after twice as many.
    """

    prefix: str
    select: Callable[[Page], Page]
    start: str = ""
    end: str = ""
    token: str = ""
    last: str = ""
    is_divisible: bool = True
    pause: int = 1
    countdown: int = 0

    def send(self, lister: ObjectLister, idle: int) -> tuple[Page, Sequence[RangeRequest]]:
        """Return a page, and the requests of the rest of the range."""
        start = "" if self.token else self.start
        page = list_page(lister, self.prefix, self.token, start=start, last=self.last)
        keys, token = page.keys, page.token
        last = keys[-1] if keys else self.last
        is_sorted = all(key < next_key for key, next_key in pairwise([self.last, *keys]))
        if self.start or self.end:
            if not is_sorted:
                raise OSError(f"the store lists its objects after {self.last!r} in no order")
            if self.end and last >= self.end:
                token = ""
            first = bisect_right(keys, self.start) if self.start else 0
            stop = bisect_right(keys, self.end) if self.end else len(keys)
            page = Page(keys[first:stop], page.sizes[first:stop])
        if not token:
            return self.select(page), ()
        # A server that ignores the start begins with keys before it.
        is_divisible = self.is_divisible and lister.is_ordered and is_sorted and last >= self.start
        countdown = max(0, self.countdown - 1)
        rest = replace(self, token=token, last=last, is_divisible=is_divisible, countdown=countdown)
        if not (is_divisible and keys and idle > 0) or self.countdown:
            return self.select(page), (rest,)
        return self.select(page), rest.divide(lister, keys, idle + 1)

    def divide(
        self, lister: ObjectLister, listed: Sequence[str], count: int
    ) -> Sequence[RangeRequest]:
        """Return up to ``count`` ranges, if this one has many pages after those with ``listed``."""
        bounds = self._find_folders(lister, listed)
        if bounds:
            parts = min(count, len(bounds))
            bounds = [bounds[number * len(bounds) // parts] for number in range(1, parts)]
        else:
            guessed = guess_bounds(listed, self.end, count, _MIN_PAGES)
            bounds = [
                key for key in guessed if self.last < key and (key < self.end or not self.end)
            ]
        if not bounds:
            return (replace(self, pause=2 * self.pause, countdown=self.pause),)
        others = [
            replace(self, token="", last="", start=start, end=end)
            for start, end in pairwise([*bounds, self.end])
        ]
        return replace(self, end=bounds[0]), *others

    def _find_folders(self, lister: ObjectLister, listed: Sequence[str]) -> list[str]:
        """Return folders after the last key, with about two pages between them, if there are many.

        ``listed`` are the keys of a page; other pages are taken to have as many folders.
        """
        for folder in self._shared_folders():
            prefix = max(folder, self.prefix, key=len)
            try:
                level = lister.list_page(prefix, delimiter="/", start=self.last).prefixes
            except Exception:  # noqa: BLE001 - such as of permissions for some prefixes only
                return []
            found = [
                key for key in sorted(level) if self.last < key and (key < self.end or not self.end)
            ]
            inside = [key[len(folder) :] for key in listed if key.startswith(folder)]
            pages = len(found) / max(1, len({key.partition("/")[0] for key in inside}))
            if pages >= _MIN_PAGES:
                parts = int(pages) // 2
                return [found[number * len(found) // parts] for number in range(parts)]
        return []

    def _shared_folders(self) -> list[str]:
        """Return the folders of the last key, from the deepest one that has the whole range."""
        ends = [number + 1 for number, letter in enumerate(self.last) if letter == "/"]
        folders = [self.last[:end] for end in [0, *ends]]
        whole = [
            folder
            for folder in folders
            if self.prefix.startswith(folder) or (self.end and self.end.startswith(folder))
        ]
        return folders[len(whole) - 1 :]
