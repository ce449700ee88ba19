"""Names of what shards write."""

from __future__ import annotations

import operator
from typing import Any

from hyperplane.errors import Fault, check
from hyperplane.public_calls import check_call
from hyperplane.shards.identity import resolve_shard
from hyperplane.stores.templates import fill_template


@check_call
def output_path(template: str, idx: int | None = None, n: int | None = None) -> str:
    """The name of what one shard writes.

    Parameters
    ----------
    template : str
        A path or URL with fields: ``{idx}`` is replaced by the number of the shard and ``{n}`` by
        the number of all shards; ``{}`` is ``{idx}``, as in ``template.format(idx)``.
        ``{idx:05d}`` and ``{:05d}`` have at least five digits. ``{{`` and ``}}`` are braces.
        Nothing else is replaced.
    idx, n : int, optional
        The number of this shard, from 0, and how many there are; :func:`shard` says it when
        ``idx`` is not given.

    Returns
    -------
    str
        The path or URL; another one for each shard.

    Raises
    ------
    RequestError
        With everything that is wrong: another field, no ``{}`` or ``{idx}`` although there are
        more shards than one, a ``..`` that leads out of the folder, a field before the first
        folder of a URL, a number out of range.

    Examples
    --------
    >>> output_path("gs://bucket/output_{}.csv", 7)
    'gs://bucket/output_7.csv'
    >>> output_path("gs://bucket/out_{idx:05d}.parquet", 7)
    'gs://bucket/out_00007.parquet'
    >>> output_path("out-{idx}-of-{n}.csv", 2, 8)
    'out-2-of-8.csv'
    """
    if not isinstance(template, str) or not template.strip():
        check([Fault("template", repr(template)[:80], "a path or URL")])
    share: tuple[int, int | None]
    if idx is not None and n is None:
        # Any count will do to check the number alone.
        (number, _), faults = resolve_shard(idx, _more_than(idx), ("idx", "n"))
        share = (number, None)
    else:
        share, faults = resolve_shard(idx, n, ("idx", "n"))
    made, wrong = fill_template(template, *share)
    check([*faults, *wrong])
    return made


def _more_than(idx: Any) -> int:
    try:
        return max(0, operator.index(idx)) + 1  # integers of NumPy and pandas, too
    except TypeError:
        return 1
