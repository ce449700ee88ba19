"""Errors of tasks are translated without harm to the scheduler's transitions."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from hyperplane.core.dask_internals.task_errors import translate_task_errors


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_error_is_kept_if_its_translation_fails(is_broken: bool) -> None:
    ended: list[dict[str, Any]] = []

    class FakeScheduler:
        _TRANSITIONS_TABLE: ClassVar[dict[Any, Any]] = {
            ("processing", "erred"): lambda _, key, stimulus_id, **fields: ended.append(fields)
        }

    def translate(key: Any, exception: Any, text: str) -> bytes:
        return bytes(1 // (not is_broken))

    scheduler = FakeScheduler()
    translate_task_errors(scheduler, translate)
    handle: Any = scheduler._TRANSITIONS_TABLE["processing", "erred"]
    handle(scheduler, "x", "test", exception=b"of Dask", traceback=b"lines")
    (fields,) = ended
    assert fields["exception"] == (b"of Dask" if is_broken else b"\0")
