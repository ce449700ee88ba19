"""moto's S3 server, with conditional requests one at a time: ``atomic_moto.py -H HOST -p PORT``.

Of concurrent requests that create an object, S3 accepts one. moto checks whether the object exists
and stores it in a second step, so that on a busy machine two requests can succeed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

from moto import server

_CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")
_one_at_a_time = threading.Lock()


class AtomicApplication(server.DomainDispatcherApplication):
    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        conditional = environ["REQUEST_METHOD"] in ("PUT", "POST") and any(
            name in environ for name in _CONDITIONS
        )
        with _one_at_a_time if conditional else nullcontext():
            answer: Iterable[bytes] = super().__call__(environ, start_response)
            return answer


if __name__ == "__main__":
    server.DomainDispatcherApplication = AtomicApplication  # type: ignore[misc]
    server.main()
