"""Output paths of shards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperplane import RequestError, output_path


@pytest.mark.parametrize(
    ("template", "idx", "n", "expected"),
    [
        ("gs://b/out_{idx:05d}.parquet", 7, None, "gs://b/out_00007.parquet"),
        ("s3://b/{n}/{idx}-of-{n:3d}.csv", 2, 8, "s3://b/8/2-of-  8.csv"),
        ("/data/{idx:03}.csv", 12, 100, "/data/012.csv"),
        ("{{idx}}-{idx}", 1, 2, "{idx}-1"),
        ("alone.csv", 0, 1, "alone.csv"),
        ("file:///data/{idx}.csv", 1, 2, "file:///data/1.csv"),
        ("a..b/{idx}.csv", 1, 2, "a..b/1.csv"),
        ("memory://d/{idx}", 1, 2, "memory://d/1"),
        ("gs://alim/storage/output_{}.csv", 3, None, "gs://alim/storage/output_3.csv"),
        ("output_{:05d}-of-{n}.csv", 3, 8, "output_00003-of-8.csv"),
        ("{idx}/output_{}.csv", 3, 8, "3/output_3.csv"),
        ("{{}}-{}", 3, 8, "{}-3"),
        ("output_{}.csv", np.int64(4), None, "output_4.csv"),
        ("{idx}-of-{n}.csv", np.uint8(4), np.int32(9), "4-of-9.csv"),
    ],
)
def test_fields_are_replaced(template, idx, n, expected):
    assert output_path(template, idx, n) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{}-{}.csv",
        "{{}}.csv",
        "{:x}.csv",
        "gs://b{}/a.csv",
        "{0}-{idx}",
        "{idx.real}",
        "{idx[0]}",
        "{idx!r}",
        "{idx:x}",
        "{idx:>5}",
        "{idx:999d}",
        "{idx:{n}}",
        "{name}-{idx}",
        "{idx",
        "idx}-{idx}",
        "{ idx }",
        "../{idx}.csv",
        "gs://b/../{idx}.csv",
        "a\\..\\{idx}.csv",
        "gs://b{idx}/a.csv",
        "gs:///{idx}.csv",
        "same.csv",
        "",
        None,
    ],
)
def test_other_templates_are_refused(template):
    with pytest.raises(RequestError) as raised:
        output_path(template, 1, 4)
    assert {fault.where for fault in raised.value.faults} == {"template"}


def test_faults_do_not_show_secrets():
    with pytest.raises(RequestError) as raised:
        output_path("s3://key:secret@b/../{idx}", 1, 4)
    assert "secret" not in str(raised.value)


def test_all_faults_are_reported_together():
    with pytest.raises(RequestError) as raised:
        output_path("../{who}/out.csv", 4, 4)
    assert [fault.where for fault in raised.value.faults] == ["idx"] + 3 * ["template"]


def test_the_count_is_needed_where_the_template_has_it(monkeypatch):
    with pytest.raises(RequestError, match="n = None"):
        output_path("{idx}-of-{n}", 1)
    with pytest.raises(RequestError, match=r"with \{\} or \{idx\}"):
        output_path("out.csv", 0)
    monkeypatch.setenv("HYPERPLANE_SHARD_INDEX", "1")
    monkeypatch.setenv("HYPERPLANE_SHARD_COUNT", "3")
    assert output_path("{idx}-of-{n}") == "1-of-3"
    with pytest.raises(RequestError, match=r"with \{\} or \{idx\}"):
        output_path("out.csv")


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.sampled_from(["{}", "{:05d}", "{idx}", "{idx:05d}"]),
)
def test_two_shards_never_share_a_name(one, other, field):
    names = {output_path(f"a/{field}.csv", number) for number in (one, other)}
    assert len(names) == len({one, other})
