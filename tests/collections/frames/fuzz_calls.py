"""Several calls of helpers on one drawn collection, and the number of compared calls.

Drawing a collection takes as long as one or two calls, so each is given to some. A failure shrinks
to one collection and one call, and names both.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from scale import scaled_calls

#: Test file -> number of calls to compare at full scale, and of those on collections
#: whose declared types are wrong. All files together: 10,000 and 5,000.
FULL = {
    "groups": (2000, 1300),
    "rows": (2900, 1600),
    "windows": (1400, 900),
    "join": (750, 150),
    "times": (2950, 1200),
}
#: Calls on one collection.
MOST = 10

COMPARED, REFUSED, NO_REFERENCE = "compared", "refused", "without a result of pandas"


@dataclass(frozen=True)
class Helper:
    """Functions that draw the arguments of a helper and check its result.

    Parameters
    ----------
    arguments : callable
        ``arguments(draw, case)`` draws the arguments of a call.
    check : callable
        ``check(case, arguments, plain)`` calls and compares; it returns one of `COMPARED`,
        `REFUSED` and `NO_REFERENCE`. With `plain` it compares types with those of plain Dask, too.
    """

    arguments: Callable[[Any, Any], dict[str, Any]]
    check: Callable[[Any, dict[str, Any], bool], str]


@dataclass(frozen=True)
class Call:
    """One call of a helper."""

    helper: str
    arguments: dict[str, Any]
    plain: bool

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.helper}({shown})" + ", as plain Dask" * self.plain

    def _repr_pretty_(self, printer, cycle):
        printer.text(repr(self))


@st.composite
def calls(draw, collections, helpers: Mapping[str, Helper]):
    """Draw a collection and calls on it."""
    case = draw(collections)
    names = st.sampled_from(sorted(helpers))

    @st.composite
    def one(draw):
        name = draw(names)
        # Plain Dask takes longer than a helper, so only some calls are compared with it.
        plain = case.has_right_meta and draw(st.integers(0, 7)) == 0
        return Call(name, helpers[name].arguments(draw, case), plain)

    # A failure shrinks to the first strategy; alone it would draw too few calls.
    few, many = ({"min_size": 1, "max_size": 3}, {"min_size": MOST // 2, "max_size": MOST})
    how = draw(st.sampled_from([few, many, many]))
    return case, draw(st.lists(one(), **how))


class Tally:
    """Numbers of calls that were compared, refused and without a reference, per helper."""

    def __init__(self, share: str, helpers: Mapping[str, Helper]):
        self.share = share
        self.helpers = helpers
        self.counts: Counter[tuple[str, str, bool]] = Counter()

    def check(self, drawn) -> None:
        """Make the drawn calls, compare the results, and count."""
        case, drawn_calls = drawn
        for call in drawn_calls:
            try:
                outcome = self.helpers[call.helper].check(case, call.arguments, call.plain)
            except BaseException as error:
                error.add_note(f"in {call}")
                raise
            self.counts[call.helper, outcome, case.has_right_meta] += 1

    def __str__(self) -> str:
        lines = []
        for name in self.helpers:
            by_outcome = {
                outcome: (self.counts[name, outcome, True], self.counts[name, outcome, False])
                for outcome in (COMPARED, REFUSED, NO_REFERENCE)
            }
            shown = (f"{sum(two):,} {word} ({two[1]:,})" for word, two in by_outcome.items())
            lines.append(f"{name}: " + ", ".join(shown))
        return "calls (of these on wrong declared types): " + "; ".join(lines)

    def assert_enough_calls(self) -> None:
        """Fail if fewer calls were compared than required for this file."""
        sys.stdout.write(f"{self}\n")
        compared = {key: count for key, count in self.counts.items() if key[1] == COMPARED}
        wrong_count = sum(count for key, count in compared.items() if not key[2])
        least, least_wrong = map(scaled_calls, (len(self.helpers), 1), FULL[self.share])
        assert sum(compared.values()) >= least, f"fewer than {least:,} compared; {self}"
        assert wrong_count >= least_wrong, f"fewer than {least_wrong:,} on wrong types; {self}"
        missing = set(self.helpers) - {name for name, _, _ in compared}
        assert not missing, f"never compared: {missing}"
