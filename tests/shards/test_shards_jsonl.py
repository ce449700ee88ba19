"""Shares of JSON lines."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from counting_store import fresh, read_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane import shard_rows
from hyperplane.formats import text_samples

RECORD = st.fixed_dictionaries(
    {"n": st.integers(-9, 9), "s": st.text(max_size=6), "x": st.floats(-1, 1, allow_nan=False)},
    optional={"may": st.none() | st.integers(0, 3)},
)


@settings(max_examples=scaled(12, 60), suppress_health_check=list(HealthCheck))
@given(
    records=st.lists(RECORD, min_size=1, max_size=12),
    n=st.integers(1, 16),
    newline=st.sampled_from(["\n", "\r\n", "\n\n"]),
    last=st.booleans(),
    raw=st.booleans(),
)
def test_shares_of_any_records_are_the_whole_file(tmp_path_factory, records, n, newline, last, raw):
    path = tmp_path_factory.mktemp("jsonl") / "one.jsonl"
    lines = [json.dumps(record, ensure_ascii=not raw) for record in records]
    path.write_bytes((newline.join(lines) + newline * last).encode("utf-8", "surrogatepass"))
    shares = [shard_rows(path, n, idx) for idx in range(n)]
    assert all(share.dtypes.equals(shares[0].dtypes) for share in shares)
    whole = pd.concat(shares, ignore_index=True)
    assert whole["n"].to_list() == [record["n"] for record in records]
    assert whole["s"].to_list() == [record["s"] for record in records]
    assert whole["x"].to_list() == [record["x"] for record in records]
    if "may" in whole:
        may = [None if pd.isna(value) else value for value in whole["may"]]
        assert may == [record.get("may") for record in records]


def test_little_more_than_the_share_is_read(monkeypatch):
    store = fresh()
    monkeypatch.setattr(text_samples, "HEAD", 10_000)
    monkeypatch.setattr(text_samples, "EXCERPT", 2_000)
    text = "".join(f'{{"n": {n}, "s": "w\\n"}}\n' for n in range(100_000)).encode()
    store.pipe_file("/big.jsonl", text)
    rows = []
    for idx in range(5):
        share, nbytes, _ = read_of(lambda idx=idx: shard_rows("tally://big.jsonl", 5, idx))
        rows += share["n"].to_list()
        assert nbytes < len(text) / 5 + 14_100 + 2 * text_samples.STEP
    assert rows == list(range(100_000))


@pytest.mark.parametrize("n", [1, 3])
def test_arguments_of_csv_are_refused(tmp_path, n):
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(ValueError, match=r"multiline = True: .*no value for jsonl files"):
        shard_rows(tmp_path / "a.jsonl", n, 0, multiline=True)
