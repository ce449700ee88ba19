"""Kinds of joins."""

from __future__ import annotations

from typing import Literal, get_args

How = Literal["inner", "left", "semi", "anti"]
HOWS: tuple[How, ...] = get_args(How)
#: Joins whose rows are rows of the left side, each at most once.
SELECTING = ("semi", "anti")
