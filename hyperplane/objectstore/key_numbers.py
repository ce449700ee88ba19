"""Guess keys that divide a listing evenly, from the numbers in the keys of a page."""

from __future__ import annotations

from collections.abc import Sequence

#: Digits of numbers in names, and of hashes and UUIDs.
_DIGITS = ("0123456789", "0123456789abcdef")
#: Digits after the first that differs within a page.
_PRECISION = 2
#: Without an end, pages to the first bound, and bounds, each of which is as much farther away.
_FACTOR, _OPEN_BOUNDS = 4, 6


def guess_bounds(listed: Sequence[str], end: str, count: int, min_pages: int) -> list[str]:
    """Return keys after those of a page; empty if its keys have no numbers, or the end is near.

    Parameters
    ----------
    listed : sequence of str
        Keys of the page, in order.
    end : str
        Last key of the listing; empty if it is unknown.
    count : int
        Number of parts that are wanted.
    min_pages : int
        Least number of pages up to ``end``, if that is a key with a number, too.

    Examples
    --------
    >>> page = [f"part-{number:05d}.csv" for number in range(1000)]
    >>> guess_bounds(page, "part-90000", 3, 4)
    ['part-30666', 'part-60333']
    >>> guess_bounds(page, "", 3, 4)
    ['part-04995', 'part-16983']
    """
    first, last = listed[0], listed[-1]
    place = next((number for number, letter in enumerate(first) if letter != last[number]), None)
    if place is None:
        return []
    for digits in _DIGITS:
        start = stop = place
        while start and last[start - 1] in digits:
            start -= 1
        while stop < len(last) and stop <= place + _PRECISION and last[stop] in digits:
            stop += 1
        head, width, base = last[:start], stop - start, len(digits)
        numbers = [_parse(key, head, width, digits) for key in (first, last)]
        if -1 in numbers or numbers[0] == numbers[1]:
            continue
        step, limit = numbers[1] - numbers[0], _parse(end, head, width, digits)
        if limit < 0:
            steps = [step * _FACTOR**power for power in range(1, _OPEN_BOUNDS + 1)][: count - 1]
            bounds = [numbers[1] + each for each in steps if numbers[1] + each < base**width]
        else:
            parts = min(count, (limit - numbers[1]) // step // 2)
            if limit - numbers[1] < min_pages * step:
                return []
            bounds = [numbers[1] + (limit - numbers[1]) * part // parts for part in range(1, parts)]
        return [head + _format(number, width, digits) for number in bounds]
    return []


def _parse(key: str, head: str, width: int, digits: str) -> int:
    """Return the number after the head of a key, or -1."""
    text = key[len(head) : len(head) + width]
    is_number = key.startswith(head) and len(text) == width > 0 and set(text) <= set(digits)
    return int(text, len(digits)) if is_number else -1


def _format(number: int, width: int, digits: str) -> str:
    return f"{number:0{width}d}" if len(digits) == 10 else f"{number:0{width}x}"
