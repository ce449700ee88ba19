"""Items of bags as the rows of a table: what fits, and what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyperplane.storage.text_formats import item_error


def build_table(items: Sequence[Any], form: str) -> Any:
    """Items of a bag as a table of Arrow that gives the same items back.

    Parameters
    ----------
    items : sequence of dict
        The items of a partition; all with the fields of the first.
    form : str
        What errors call the format.

    Returns
    -------
    pyarrow.Table

    Raises
    ------
    WrongType
        When an item is no dict, has other fields than the first, or a value of another type.

    Examples
    --------
    >>> check_like([{"n": 1, "at": None}, {"n": 2.5, "at": None}], "parquet").to_pylist()
    [{'n': 1.0, 'at': None}, {'n': 2.5, 'at': None}]
    """
    import pyarrow as pa

    fields = list(items[0]) if items and isinstance(items[0], dict) else []
    expected = dict.fromkeys(fields).keys()
    for number, item in enumerate(items):
        if not isinstance(item, dict) or not item:
            raise item_error(
                "item", item, number, f"{form} takes dicts with fields; save it as jsonl"
            )
        if item.keys() != expected:
            name = next(iter(item.keys() ^ expected))
            wrong = "not in every item; fill it with None in all, or save as jsonl"
            raise item_error(str(name), item.get(name), number, wrong)
    for name in fields:
        if not isinstance(name, str):
            raise item_error(f"the key {name!r}", name, 0, "names of fields are text")
    columns = [_build_column(items, name, form) for name in fields]
    table = pa.table(columns, names=fields)
    _check_round_trip(table.to_pylist(), items, form)
    return table


def _build_column(items: Sequence[Mapping[str, Any]], name: str, form: str) -> Any:
    import pyarrow as pa

    values = [item[name] for item in items]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        kinds = [type(value) for value in values if value is not None]
        number = next(
            (
                n
                for n, value in enumerate(values)
                if value is not None and type(value) is not kinds[0]
            ),
            0,
        )
        said = " ".join(str(error).split())[:160]
        wrong = f"{form} needs values of one type in a field ({said}); convert it, or save as jsonl"
        raise item_error(name, values[number], number, wrong) from error


def _check_round_trip(made: Sequence[Any], items: Sequence[Any], form: str) -> None:
    """Find what would come back as something else."""
    try:
        if made == items:
            return
    except ValueError:
        pass  # arrays inside
    for number, (one, item) in enumerate(zip(made, items, strict=True)):
        found = _find_difference(one, item, "")
        if found is not None:
            path, value = found
            wrong = f"in {form} it would come back as something else; convert it, or save as jsonl"
            raise item_error(path, value, number, wrong)


def _find_difference(made: Any, item: Any, path: str) -> tuple[str, Any] | None:
    """The first place where two values differ; NaN is like NaN, and a tuple like a list."""
    if isinstance(made, dict) and isinstance(item, dict):
        for key in {**item, **made}:
            inside = f"{path}.{key}" if path else str(key)
            if key not in made or key not in item:
                return inside, item.get(key)
            found = _find_difference(made[key], item[key], inside)
            if found is not None:
                return found
        return None
    if isinstance(made, list) and isinstance(item, list | tuple) and len(made) == len(item):
        pairs = enumerate(zip(made, item, strict=True))
        looked = (_find_difference(one, other, f"{path}[{n}]") for n, (one, other) in pairs)
        return next((found for found in looked if found is not None), None)
    try:
        same = bool(made == item) or bool(made != made and item != item)
    except ValueError:
        same = False
    return None if same else (path, item)
