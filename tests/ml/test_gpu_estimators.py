"""Selection of cuML's estimators, with modules that have the names of cuML but compute nothing."""

import importlib.machinery
import sys
import types

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import all_estimators

from hyperplane.errors import RequestError
from hyperplane.ml import gpu_equivalent
from hyperplane.ml.gpu_estimators import CLASSES, DISTRIBUTED_CLASSES


def _single(name, *parameters):
    """Return a class with a constructor as those of cuML have, by keyword and with defaults."""
    arguments = "".join(f", {each}='default'" for each in parameters)
    body = "".join(f"    self.{each} = {each}\n" for each in parameters) or "    pass\n"
    scope = {}
    exec(f"def __init__(self, *{arguments}):\n{body}" if parameters else "__init__ = None", scope)
    methods = {"__init__": scope["__init__"]} if parameters else {}
    return type(name, (BaseEstimator,), methods)


class _Distributed:
    """Base of classes that take any keyword, as those of cuml.dask do."""

    def __init__(self, *, client=None, verbose=False, **kwargs):
        self.kwargs = kwargs


@pytest.fixture
def cuml(monkeypatch):
    """Modules with a few of cuML's classes."""
    classes = {
        "cuml": {},
        "cuml.cluster": {
            "KMeans": _single("KMeans", "n_clusters", "init", "random_state"),
            "HDBSCAN": _single("HDBSCAN", "min_cluster_size"),
        },
        "cuml.svm": {"SVC": _single("SVC", "C", "kernel")},
        "cuml.preprocessing": {
            "StandardScaler": _single("StandardScaler", "with_mean"),
            "SimpleImputer": _single("SimpleImputer", "strategy"),
        },
        "cuml.linear_model": {"LogisticRegression": _single("LogisticRegression", "C")},
        "cuml.dask": {},
        "cuml.dask.cluster": {"KMeans": type("KMeans", (_Distributed,), {})},
    }
    for name, members in classes.items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    return types.SimpleNamespace(
        KMeans=classes["cuml.cluster"]["KMeans"],
        HDBSCAN=classes["cuml.cluster"]["HDBSCAN"],
        SVC=classes["cuml.svm"]["SVC"],
        StandardScaler=classes["cuml.preprocessing"]["StandardScaler"],
        SimpleImputer=classes["cuml.preprocessing"]["SimpleImputer"],
        LogisticRegression=classes["cuml.linear_model"]["LogisticRegression"],
        DistributedKMeans=classes["cuml.dask.cluster"]["KMeans"],
    )


def test_the_class_of_cuml_has_the_parameters_that_were_set(cuml):
    start = np.zeros((3, 2))
    replaced = gpu_equivalent(KMeans(3, init=start), ngpus=1)
    assert type(replaced) is cuml.KMeans
    assert replaced.n_clusters == 3
    assert replaced.init is start
    assert replaced.random_state == "default"


def test_a_class_in_a_private_package_is_found(cuml):
    assert type(gpu_equivalent(HDBSCAN(min_cluster_size=7), ngpus=2)) is cuml.HDBSCAN


def test_a_class_in_a_module_of_another_name_is_found(cuml):
    found = gpu_equivalent(SimpleImputer(strategy="median"), ngpus=1)
    assert (type(found), found.strategy) == (cuml.SimpleImputer, "median")


def test_without_a_gpu_the_estimator_stays(cuml, monkeypatch):
    model = KMeans(3)
    assert gpu_equivalent(model, ngpus=0) is model
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu_equivalent(model) is model
    with pytest.raises(RequestError, match=r"ngpus = 0: expected one or more GPUs"):
        gpu_equivalent(model, required=True)


def test_without_cuml_the_estimator_stays(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model = KMeans(3)
    assert gpu_equivalent(model, ngpus=1) is model
    with pytest.raises(RequestError, match=r"cuML is not installed; pip install cuml-cu12"):
        gpu_equivalent(model, ngpus=1, required=True)
    with pytest.raises(RequestError, match=r"(?s)ngpus = 0.*cuML is not installed"):
        gpu_equivalent(model, ngpus=0, required=True)


def test_a_parameter_that_cuml_does_not_have_keeps_the_estimator(cuml):
    model = SVC(C=2.0, break_ties=True, shrinking=False)
    with pytest.warns(UserWarning, match=r"parameter \w+ of SVC = ") as warned:
        assert gpu_equivalent(model, ngpus=1) is model
    assert len(warned) == 2
    with pytest.raises(RequestError) as error:
        gpu_equivalent(model, ngpus=1, required=True)
    assert "parameter break_ties of SVC = True" in str(error.value)
    assert "parameter shrinking of SVC = False" in str(error.value)


def test_an_estimator_without_an_equivalent_stays(cuml):
    model = GradientBoostingClassifier()
    assert gpu_equivalent(model, ngpus=1) is model
    with pytest.raises(RequestError, match=r"GradientBoostingClassifier: expected a class that"):
        gpu_equivalent(model, ngpus=1, required=True)

    class SVC2(SVC):
        pass

    own = SVC2()
    assert gpu_equivalent(own, ngpus=1) is own


def test_the_steps_of_a_pipeline_in_a_grid_search_are_replaced(cuml):
    search = GridSearchCV(
        make_pipeline(StandardScaler(with_mean=False), LogisticRegression(C=3.0)),
        {"logisticregression__C": [1.0, 2.0]},
    )
    replaced = gpu_equivalent(search, ngpus=1, required=True)
    assert isinstance(replaced, GridSearchCV)
    assert isinstance(replaced.estimator, Pipeline)
    scaler, model = (step for _, step in replaced.estimator.steps)
    assert type(scaler) is cuml.StandardScaler
    assert scaler.with_mean is False
    assert type(model) is cuml.LogisticRegression
    assert model.C == 3.0
    # The estimator that was passed is not changed.
    assert type(search.estimator.steps[1][1]) is LogisticRegression


def test_the_transformers_of_columns_are_replaced(cuml):
    columns = ColumnTransformer([("s", StandardScaler(), ["a"]), ("rest", "drop", ["b"])])
    replaced = gpu_equivalent(columns, ngpus=1)
    (_, scaler, names), other = replaced.transformers
    assert type(scaler) is cuml.StandardScaler
    assert names == ["a"]
    assert other == ("rest", "drop", ["b"])


def test_a_pipeline_of_other_estimators_stays(cuml):
    pipeline = make_pipeline(GradientBoostingClassifier())
    assert gpu_equivalent(pipeline, ngpus=1) is pipeline


def test_the_distributed_class_is_selected(cuml):
    replaced = gpu_equivalent(KMeans(4), ngpus=1, distributed=True)
    assert type(replaced) is cuml.DistributedKMeans
    assert replaced.kwargs == {"n_clusters": 4}
    with pytest.raises(RequestError, match=r"SVC: expected a class that cuml\.dask has, too"):
        gpu_equivalent(SVC(), ngpus=1, distributed=True, required=True)


def test_all_faults_of_a_call_are_listed():
    with pytest.raises(RequestError) as error:
        gpu_equivalent(RandomForestClassifier, ngpus=-1, required="yes")
    assert all(name in str(error.value) for name in ("estimator = ", "ngpus = -1", "required = "))


def test_the_listed_classes_are_those_of_scikit_learn():
    known = {
        (".".join(p for p in kind.__module__.split(".") if p[0] != "_"), name)
        for name, kind in all_estimators()
    }
    for module, names in CLASSES.items():
        for name in names:
            assert any(
                f"{each}.".startswith(f"sklearn.{module}.") and name == kind for each, kind in known
            ), name
    for module, names in DISTRIBUTED_CLASSES.items():
        assert set(names) <= set(CLASSES[module])
