"""Display and order of findings, and faults of arguments."""

import json
import pickle

import dask.dataframe as dd
import pandas as pd
import pytest
from explain_frames import explain_lazily, first_row, log, named, users
from html_pages import read_page

from hyperplane.collections.frames.explain import Explanation, Finding, explain
from hyperplane.errors import RequestError

NASTY = "<b>&'\"\n\x1b[31m"


def test_the_text_ends_with_a_summary():
    text = str(explain_lazily(log().set_index("user").spent.sum()))
    assert text.splitlines()[0].startswith("set_index  set_index('user'): 6 partitions, ")
    assert text.splitlines()[-1] == "1 finding: 4 steps, 6 partitions"
    assert all("\t" not in line for line in text.splitlines())
    assert (
        str(explain_lazily(log().spent.sum())) == "nothing expensive found: 3 steps, 6 partitions"
    )


def test_a_shared_step_and_source_are_counted_once():
    frame = log()
    explanation = explain_lazily(frame.spent.sum(), frame.spent.max())
    assert (explanation.steps, explanation.partitions) == (4, 6)


def test_each_line_of_code_is_one_row():
    explanation = explain_lazily(log().groupby("user").apply(first_row, meta=users().head(0)))
    labels = [label.strip() for label, _ in explanation.rows()]
    assert labels == ["groupby_apply", "why", "instead", "", "persist"]


def test_the_most_expensive_step_comes_first():
    small, large = log(), dd.from_pandas(pd.concat([users()] * 50), npartitions=5)
    both = dd.concat([small.sort_values("spent"), large.sort_values("spent")])
    unknown = large.map_partitions(lambda part: part).sort_values("user")
    loc = large.clear_divisions().loc[3:5]
    findings = explain_lazily(dd.concat([both, loc, unknown])).findings
    assert [finding.kind for finding in findings] == ["sort_values"] * 3 + ["loc_unknown"]
    moved = [finding.moved for finding in findings[:3]]
    assert moved[0] is None
    assert moved[1] > 40 * moved[2] > 0


def test_names_of_columns_are_escaped():
    frame = dd.from_pandas(users().rename(columns={"user": NASTY}), npartitions=4)
    explanation = explain_lazily(
        frame.set_index(NASTY), frame.merge(frame, on=NASTY), frame.groupby(NASTY).spent.nunique()
    )
    page = explanation._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;" in page
    assert NASTY not in str(explanation)
    assert "\x1b" not in str(explanation)
    assert "\\n\\x1b[31m" in str(explanation)


def test_html_is_a_table_with_the_summary():
    explanation = explain_lazily(log().set_index("user"))
    page = read_page(explanation._repr_html_())
    assert page.rows["summary"] == "1 finding: 2 steps, 6 partitions"
    # Lines of code keep their indentation.
    assert all(text in page.cells for row in explanation.rows() for text in row)


def test_an_explanation_is_serialized_as_json_and_pickled():
    explanation = explain_lazily(log().merge(named(), on="user"))
    values = json.loads(json.dumps(explanation.to_dict()))
    assert values["findings"][0]["kind"] == "join"
    assert values["findings"][0]["moved"] > 0
    assert values["summary"] == "1 finding: 3 steps, 9 partitions"
    assert pickle.loads(pickle.dumps(explanation)) == explanation


def test_an_explanation_is_frozen():
    explanation = explain_lazily(log())
    with pytest.raises(AttributeError):
        explanation.steps = 3
    assert isinstance(explanation, Explanation)
    assert Finding("a", "b", "c", "d", "e").moved is None


def test_all_faults_are_reported_together():
    with pytest.raises(RequestError) as error:
        explain(log(), users(), log().groupby("user"), 3)
    assert [fault.where for fault in error.value.faults] == [
        "collections[1]",
        "collections[2]",
        "collections[3]",
    ]
    assert "computed already" in str(error.value)
    assert "end the group-by" in str(error.value)
    with pytest.raises(RequestError, match="collections is not set"):
        explain()


def test_a_password_in_an_address_is_not_shown(tmp_path):
    folder = tmp_path / "user:secret@host"
    folder.mkdir()
    users().to_parquet(folder / "log.parquet")
    frame = dd.read_parquet(folder / "log.parquet").repartition(npartitions=501)
    explanation = explain_lazily(
        dd.read_parquet(folder / "log.parquet").sort_values("spent"), frame
    )
    assert explanation.kinds
    assert "secret" not in str(explanation)
