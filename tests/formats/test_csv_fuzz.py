"""Readers of random CSV files return the written values, or raise our errors."""

from __future__ import annotations

import csv
import gzip
import io
import math

import dask
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from scale import scaled

import hyperplane
from hyperplane.errors import HyperplaneError
from hyperplane.formats import partition_sizes, text_samples

QUICK = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=set(Phase) - {Phase.explain},
)
GAPS = ["", "NA", "null", "n/a", "NaN", "None", "<NA>", "-nan"]
KINDS = {
    "int": ["0", "1", "-7", "42", "007", "+5"],
    "long": ["1", "9007199254740993", "9223372036854775807", "-9223372036854775808"],
    "large": ["1", "9223372036854775808", "18446744073709551615"],
    "huge": ["1", "18446744073709551616", "-9223372036854775809"],
    "float": ["1.5", "-0.0", "0.1", "1e300", "5e-324", "1e400", "2.", ".5", "1E5"],
    "infinite": ["inf", "-inf", "Infinity", "1.0", "+inf"],
    "hexadecimal": ["0x1f", "1"],
    "truth": ["True", "False", "TRUE", "false", "true"],
    "date": ["2024-02-29", "1969-12-31", "2024-01-01 10:00:00", "2024-01-01T10:00:00Z"],
    "text": [
        "a",
        " a",
        "b ",
        "a,b",
        'q"x',
        '"',
        "two\nlines",
        "x\r\ny",
        "1_000",
        "\u00fc\u2028",
        "-",
    ],
    "nothing": ["", "NA"],
}
NAMES = ["a", "b b", "1", "", "*", "^x$", "\u00fc", "x.y", 'q"', "a,b", "__index_level_0__", "NA"]


@st.composite
def files(draw):
    """The rows of a few files, with the names of their columns, and how they are written."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    usual = {name: draw(st.sampled_from(list(KINDS))) for name in names}
    files = []
    for _ in range(draw(st.integers(1, 3))):
        file_names = draw(st.permutations(names))[: draw(st.integers(1, len(names)))]
        rows = draw(st.integers(0, 5))
        columns = []
        for name in file_names:
            drifts = draw(st.integers(0, 3)) == 0
            kind = draw(st.sampled_from(list(KINDS))) if drifts else usual[name]
            gaps = GAPS if draw(st.booleans()) else []
            values = st.sampled_from(KINDS[kind] + gaps[: len(KINDS[kind])])
            columns.append(draw(st.lists(values, min_size=rows, max_size=rows)))
        files.append((file_names, list(zip(*columns, strict=True))))
    return files


@st.composite
def forms(draw):
    """Draw the line end, the quoting and other properties of a file."""
    return {
        "end": draw(st.sampled_from(["\n", "\r\n"])),
        "quoting": draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
        "bom": draw(st.integers(0, 4)) == 0,
        "blank": draw(st.integers(0, 3)) == 0,
        "open": draw(st.integers(0, 3)) == 0,
        "packed": draw(st.integers(0, 4)) == 0,
    }


def written(names, rows, form):
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator=form["end"], quoting=form["quoting"])
    for row in [names, *rows]:
        writer.writerow(row)
        if form["blank"]:
            buffer.write(form["end"])
    text = buffer.getvalue()
    text = text.removesuffix(form["end"]) if form["open"] and not form["blank"] else text
    return (b"\xef\xbb\xbf" if form["bom"] else b"") + text.encode()


def check(value, text):
    """Check that a value is the one that its text represents."""
    if text is None or pd.isna(value):
        assert (text is None) == bool(pd.isna(value)) or text in {"nan", "-nan"}, (value, text)
    elif isinstance(value, str):
        assert value == text
    elif isinstance(value, (bool,)) or type(value).__name__ == "bool_":
        assert str(bool(value)).lower() == text.lower()
    elif type(value).__name__.startswith(("int", "uint")):
        assert int(value) == int(text)
    else:
        expected = float(text)
        assert value == expected
        assert math.copysign(1, value) == math.copysign(1, expected)
        if text.strip().lstrip("+-").isdigit():
            assert int(value) == int(text)


@pytest.mark.slow
@settings(QUICK, max_examples=scaled(40, 300))
@given(
    case=files(),
    form=forms(),
    head=st.sampled_from([60, 10**6]),
    size=st.sampled_from([None, 1, 10**6]),
    multiline=st.sampled_from([None, True]),
)
def test_csv(tmp_path_factory, case, form, head, size, multiline):
    folder = tmp_path_factory.mktemp("any")
    expected = []
    for number, (names, rows) in enumerate(case):
        data = written(names, rows, form)
        file = folder / (f"{number}.csv.gz" if form["packed"] else f"{number}.csv")
        file.write_bytes(gzip.compress(data) if form["packed"] else data)
        try:
            raw = pd.read_csv(io.BytesIO(data), dtype=str)
        except pd.errors.EmptyDataError:
            continue
        expected.append(raw)
    raw = pd.concat(expected, ignore_index=True) if expected else pd.DataFrame()
    texts = raw.astype(object).where(raw.notna(), None)
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="sync"):
        patch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
        patch.setattr(text_samples, "HEAD", head)
        patch.setattr(text_samples, "EXCERPT", 0)
        try:
            df = hyperplane.dataframe.read(
                folder, schema="union", partition_size=size, multiline=multiline
            )
            result = df.compute()
        except HyperplaneError as error:
            # If the samples are whole files, every value has a type, and no file is refused.
            if head > 60 and len(raw.columns):
                raise AssertionError("refused") from error
            event("refused")
            return
        # shard_rows has no schema="union", so it is tested with files of the same columns.
        alike = len({frozenset(frame.columns) for frame in expected}) == 1 and not form["packed"]
        shares = (
            [hyperplane.shard_rows(folder, 2, idx, multiline=multiline) for idx in range(2)]
            if alike and head > 60
            else []
        )
    event("read")
    assert list(result.columns) == list(raw.columns)
    assert result.dtypes.equals(df.dtypes)
    for name in raw.columns:
        for frame in (result, pd.concat(shares)) if shares else (result,):
            values = frame[name].tolist()
            assert len(values) == len(texts), name
            for value, text in zip(values, texts[name].tolist(), strict=True):
                check(value, text)
        # Values that pandas reads as numbers are text only if digits would be lost.
        if head > 60 and not isinstance(result[name].dtype, pd.StringDtype):
            continue
        if head > 60 and len(raw) and raw[name].notna().any():
            quoted = [t.replace('"', '""') for t in texts[name] if t is not None]
            csv_text = "\n".join(["x", *[f'"{text}"' for text in quoted]])
            theirs = pd.read_csv(io.StringIO(csv_text))["x"]
            # A number with a plus sign counts as a fraction, beside which digits would be lost.
            plus = any(text.lstrip().startswith("+") for text in quoted)
            if theirs.dtype.kind in "iub" and not plus:
                raise AssertionError(f"{name!r} is text and {theirs.dtype} for pandas")
