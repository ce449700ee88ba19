"""Errors that are marked, because they occur again after a restart."""

from __future__ import annotations

import pickle

import pytest

from hyperplane.core.permanent_errors import is_permanent, mark_permanent_errors

DistError = type("DistError", (RuntimeError,), {"__module__": "torch.distributed"})


class LostStoreError(DistError):  # type: ignore[misc, valid-type]
    """As ``DistStoreError``."""


class UnreadableError(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise TypeError("no text")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("wrong shape"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), True),
        (FileNotFoundError("weights.pt"), False),
        (RuntimeError("Connection closed by peer"), False),
        (RuntimeError("wait timeout after 1000ms, keys: /x"), False),
        (RuntimeError("CUDA out of memory"), False),
        (LostStoreError("failed to recv, got 0 bytes"), False),
        (UnreadableError(), False),
    ],
    ids=repr,
)
def test_errors_of_programs_are_marked_and_those_of_others_are_not(
    error: Exception, expected: bool
) -> None:
    with pytest.raises(type(error)) as caught, mark_permanent_errors():
        raise error
    assert caught.value is error
    assert is_permanent(error) is expected
    if expected:
        assert is_permanent(pickle.loads(pickle.dumps(error)))
