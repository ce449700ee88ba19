"""Texts and hashes of estimators and rows: equal for equal calls, also in another process."""

import subprocess
import sys
import types

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, f1_score, make_scorer
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from hyperplane.ml.search.search_identity import describe_search, list_differences

ROWS = np.arange(12.0).reshape(6, 2)
LABELS = np.arange(6) % 2


def describe(estimator=None, rows=ROWS, labels=LABELS, cv=5, scoring=None, space=()):
    return describe_search(estimator or Ridge(), rows, labels, cv, scoring, space)


def differences(first, second):
    return list_differences(describe(**first), describe(**second))


def create_pipeline(alpha=1.0):
    return make_pipeline(StandardScaler(), Ridge(alpha))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"rows": ROWS}, {"rows": np.asfortranarray(ROWS)}),
        ({"rows": ROWS}, {"rows": ROWS.tolist()}),
        ({"rows": pd.DataFrame(ROWS)}, {"rows": pd.DataFrame({0: ROWS[:, 0], 1: ROWS[:, 1]})}),
        ({"rows": sparse.csr_matrix(ROWS)}, {"rows": sparse.csc_matrix(ROWS)}),
        ({"cv": None}, {"cv": 5}),
        ({"cv": KFold(3)}, {"cv": KFold(3)}),
        ({"cv": KFold(3).split(ROWS)}, {"cv": KFold(3).split(ROWS)}),
        (
            {"estimator": Ridge(1), "space": ["alpha"]},
            {"estimator": Ridge(2), "space": ["alpha"]},
        ),
        ({"estimator": create_pipeline()}, {"estimator": create_pipeline().fit(ROWS, LABELS)}),
        (
            {"estimator": make_pipeline(FunctionTransformer(lambda x: x), Ridge())},
            {"estimator": make_pipeline(FunctionTransformer(lambda x: x), Ridge())},
        ),
    ],
)
def test_equal_calls_have_equal_texts(first, second):
    assert differences(first, second) == []


@pytest.mark.parametrize(
    ("first", "second", "where"),
    [
        ({"rows": ROWS}, {"rows": ROWS + 1}, ["X"]),
        ({"rows": ROWS}, {"rows": ROWS.reshape(2, 6)}, ["X"]),
        ({"rows": pd.DataFrame(ROWS)}, {"rows": pd.DataFrame(ROWS, columns=["a", "b"])}, ["X"]),
        ({"labels": LABELS}, {"labels": None}, ["y"]),
        ({"labels": list("ababab")}, {"labels": list("bababa")}, ["y"]),
        ({"cv": 5}, {"cv": 3}, ["cv"]),
        ({"cv": KFold(5)}, {"cv": KFold(5, shuffle=True)}, ["cv"]),
        ({"scoring": None}, {"scoring": "r2"}, ["scoring"]),
        (
            {"scoring": make_scorer(f1_score, average="macro")},
            {"scoring": make_scorer(accuracy_score)},
            ["scoring"],
        ),
        ({"estimator": Ridge(1)}, {"estimator": Ridge(2)}, ["objective"]),
        ({"estimator": Ridge(1)}, {"estimator": DecisionTreeClassifier()}, ["objective"]),
        ({"estimator": create_pipeline(1)}, {"estimator": create_pipeline(2)}, ["objective"]),
    ],
)
def test_other_calls_have_other_texts(first, second, where):
    assert differences(first, second) == where


def test_rows_that_cannot_be_hashed_are_not_compared():
    assert differences({"rows": [object()]}, {"rows": [[1]]}) == []


CALL = "describe(DecisionTreeClassifier(class_weight={0: 1.0}), pd.DataFrame(ROWS), "
CALL += "list('ababab'), KFold(3), make_scorer(f1_score))"


@pytest.mark.slow
@pytest.mark.process
def test_another_process_has_the_same_texts():
    code = f"from test_search_identity import *; print({CALL})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=__file__.rpartition("/")[0],
    )
    assert done.stdout.strip() == str(eval(CALL))


def test_rows_are_compared_while_another_thread_imports_pandas(monkeypatch):
    expected = describe()
    monkeypatch.setitem(sys.modules, "pandas", types.ModuleType("pandas"))
    assert describe() == expected
