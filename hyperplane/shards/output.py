"""Output paths of shards."""

from __future__ import annotations

import operator
from typing import Any

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.objectstore.path_templates import fill_template
from hyperplane.shards.current_shard import resolve_shard


@check_call
def output_path(template: str, idx: int | None = None, n: int | None = None) -> str:
    """Return the output path or URL of one shard.

    Parameters
    ----------
    template : str
        A path or URL with fields: ``{idx}`` is replaced by the index of the shard and ``{n}`` by
        the number of shards; ``{}`` is ``{idx}``, as in ``template.format(idx)``.
        ``{idx:05d}`` and ``{:05d}`` have at least five digits. ``{{`` and ``}}`` are replaced by
        single braces. There are no other fields.
    idx, n : int, optional
        The index of this shard, from 0, and the number of shards; those of :func:`shard` if
        ``idx`` is omitted.

    Returns
    -------
    str
        The path or URL, different for each shard.

    Raises
    ------
    RequestError
        With every fault: an unknown field, no ``{}`` or ``{idx}`` although there are several
        shards, a ``..`` in the path, a field in the bucket or host of a URL, an index out of range.

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
    count: int | None
    if idx is not None and n is None:
        # Any count above the index allows checking the index alone.
        (index, _), faults = resolve_shard(idx, _choose_larger_count(idx), ("idx", "n"))
        count = None
    else:
        (index, count), faults = resolve_shard(idx, n, ("idx", "n"))
    path, template_faults = fill_template(template, index, count)
    check([*faults, *template_faults])
    return path


def _choose_larger_count(idx: Any) -> int:
    """Return a count greater than an index; 1 if the index is not an integer."""
    try:
        return max(0, operator.index(idx)) + 1  # also accepts NumPy and pandas integers
    except TypeError:
        return 1
