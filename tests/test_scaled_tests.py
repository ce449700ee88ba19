"""Tests that use the scale, also indirectly, are selected for runs at the full scale."""

from __future__ import annotations

import pytest
import scaled_tests

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def no_garbage_collection(pytester):
    # The plugin collects garbage five times at the end of each run of pytest, which takes a second
    # with the objects of a whole run of the tests.
    pytester.makeini("[pytest]\naddopts = -p no:unraisableexception")


FILE = """
import pytest
from hypothesis import given, strategies as st
import helper
import plain
from helper import rows, tables
from scale import scaled

ROUNDS = scaled(2, 20)

@pytest.fixture
def server():
    return ROUNDS

@pytest.fixture
def client(server):
    return server

def repeat(): return ROUNDS
def other(): return plain.ONE

@pytest.mark.parametrize("n", range(scaled(1, 3)))
def test_parameters(n): pass
def test_own(): repeat()
def test_fixture_of_fixture(client): pass
@given(st.integers())
def test_examples(n): pass
def test_helper(): tables()
def test_module(): helper.rows()
class TestGroup:
    def test_within(self): repeat()

def test_none(): other()
def test_helper_without(): rows()
class TestNone:
    def test_within(self): other()
"""
HELPER = """
import scale
def tables(): return many()
def many(): return scale.scaled(1, 2)
def rows(): return 1
"""


def test_tests_that_use_the_scale_indirectly_are_found(pytester, monkeypatch):
    monkeypatch.setattr(scaled_tests, "TESTS", pytester.path)
    pytester.makepyfile(helper=HELPER, plain="ONE = 1")
    found = pytester.getitems(FILE)
    assert [(item.name, scaled_tests.has_scale(item)) for item in found] == [
        ("test_parameters[0]", True),
        ("test_own", True),
        ("test_fixture_of_fixture", True),
        ("test_examples", True),
        ("test_helper", True),
        ("test_module", True),
        ("test_within", True),
        ("test_none", False),
        ("test_helper_without", False),
        ("test_within", False),
    ]


def test_pytestmark_with_the_scale_applies_to_the_whole_file(pytester):
    (item,) = pytester.getitems(
        "from scale import FULL\nimport pytest\n"
        "pytestmark = pytest.mark.skipif(FULL, reason='')\ndef test_one(): pass"
    )
    assert scaled_tests.has_scale(item)


@pytest.mark.parametrize("line", ["import os", "from os import path"])
def test_other_imports_do_not_count_as_scale(pytester, line):
    (item,) = pytester.getitems(f"{line}\ndef test_one(): return {line.split()[-1]}")
    assert not scaled_tests.has_scale(item)
