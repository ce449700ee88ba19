"""Orders and details of a shop, written in blocks: files of twelve columns, also of wide text.

Each block has its own keys, so that the first blocks alone are a smaller data set with the same
properties. The rows of a block are in random order. Per row of 240 bytes in memory:

``id`` and ``code`` are unique on both sides; in one of 100,000 rows ``code`` is missing. ``sparse``
is unique, and two thirds of its values are on the other side, too. ``hot`` has one value in 60 % of
the orders, ``hot_right`` in 60 % of the details. Two orders have the same ``pair``, and four or no
details. Two orders have the same ``user`` and ``note``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.web_log import hexadecimal

ROWS_OF_BLOCK, FILES_OF_BLOCK = 6_000_000, 30
#: Key of 60 % of the rows of ``hot`` and ``hot_right``.
HOT = -7
#: Multipliers of permutations of the rows of a block; they have no common divisor with its rows.
_ORDERS, _DETAILS = 3_777_781, 2_654_437
_NOTES = pl.Series(
    [
        f"delivered to the door of house {number} after the customer had been called twice, "
        f"box {number * 7919 % 5003}, shelf {number % 89}"
        for number in range(5000)
    ]
)


def _make_orders(
    ids: np.ndarray, first: int, rows: int, random: np.random.Generator
) -> pl.DataFrame:
    pairs = (ids - first) // 2 + first
    return pl.DataFrame(
        {
            "id": ids,
            "sparse": ids * 3,
            "pair": pairs,
            "hot": np.where(random.random(rows) < 0.6, HOT, ids),
            "hot_right": ids,
            "code": hexadecimal(ids).set(pl.Series(ids % 100_000 == 5), None),
            "user": hexadecimal(pairs, salt=2),
            "at": pl.Series(random.integers(0, 10**15, rows)).cast(pl.Datetime("us")),
            "amount": random.integers(0, 1000, rows),
            "price": random.random(rows),
            "note": _NOTES.gather(pairs % len(_NOTES)),
        }
    )


def _make_details(
    ids: np.ndarray, first: int, rows: int, random: np.random.Generator
) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": ids,
            "sparse": ids * 3 + (ids % 3 == 0),
            "pair": (ids - first) // 4 + first,
            "hot": ids,
            "hot_right": np.where(random.random(rows) < 0.6, HOT, ids),
            "code": hexadecimal(ids).set(pl.Series(ids % 100_000 == 5), None),
            "weight": random.integers(0, 100, rows),
            "place": random.integers(0, 10**6, rows),
            "share": random.random(rows),
            "remark": _NOTES.gather(random.integers(0, len(_NOTES), rows)),
        }
    )


def write_shop(folder: Path, blocks: int) -> None:
    """Write the first blocks of ``orders/`` and ``details/`` below a folder, unless they exist."""
    rows = ROWS_OF_BLOCK // FILES_OF_BLOCK
    makers = (("orders", _make_orders, _ORDERS), ("details", _make_details, _DETAILS))
    for block in range(blocks):
        first = block * ROWS_OF_BLOCK
        for name, make, factor in makers:
            (folder / name).mkdir(parents=True, exist_ok=True)
            for number in range(FILES_OF_BLOCK):
                path = folder / name / f"{block:02}-{number:03}.parquet"
                if path.exists():
                    continue
                positions = np.arange(number * rows, (number + 1) * rows, dtype=np.int64)
                ids = positions * factor % ROWS_OF_BLOCK + first
                random = np.random.default_rng([block, number, factor])
                table = make(ids, first, rows, random)
                if block == 0:  # one row of the other side has the frequent key, too
                    table = table.with_columns(pl.col("hot", "hot_right").replace({1: HOT}))
                table.write_parquet(path.with_suffix(".part"))
                path.with_suffix(".part").rename(path)


def list_files(folder: Path, table: str, blocks: int) -> list[str]:
    """Return the files of the first blocks of a table."""
    names = [f"{block:02}-" for block in range(blocks)]
    files = sorted((folder / table).glob("*.parquet"))
    return [str(path) for path in files if path.name[:3] in names]
