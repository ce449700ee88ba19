"""Equal Dask expressions in several threads."""

from __future__ import annotations

import threading
import weakref

import pytest
from dask._expr import SingletonExpr

import hyperplane  # noqa: F401 - from here on, Dask looks again


class Vanishing(weakref.WeakValueDictionary):
    """Cache in which another thread drops the last reference between test and lookup."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def __contains__(self, name: object) -> bool:
        found = super().__contains__(name)
        if found and self.times:
            self.times -= 1
            del self[name]
        return found


class One(SingletonExpr):
    _parameters = ["number"]  # noqa: RUF012 - as Dask has it


def test_an_expression_that_vanishes_as_it_is_taken_is_made_again():
    One._instances = Vanishing(2)
    held = One(1)
    with pytest.raises(KeyError):  # Dask without the workaround
        SingletonExpr.__new__.__wrapped__(One, 1)
    held = One(1)
    again = One(1)
    assert again is not held
    assert (again.number, again._name) == (1, held._name)
    assert One(1) is again


class Lost(dict):
    """Cache whose lookups always fail."""

    def __contains__(self, name: object) -> bool:
        return True


def test_a_key_error_of_another_cause_is_raised():
    One._instances = Lost()
    with pytest.raises(KeyError):
        One(1)


def test_threads_that_make_and_drop_equal_expressions():
    One._instances = weakref.WeakValueDictionary()
    faults = []

    def work() -> None:
        try:
            for number in range(3000):
                assert One(number % 3).number == number % 3
        except BaseException as error:
            faults.append(error)
            raise

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
