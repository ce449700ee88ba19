"""The machine learning workflow of Spark on a cluster, compared with scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from services import is_empty, temporary_directory
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from hyperplane.spark import init_spark, stop_spark

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]

PROPERTIES = {"spark.ui.showConsoleProgress": False, "spark.sql.shuffle.partitions": 2}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session with one executor of one core."""
    with temporary_directory():
        yield init_spark("learning", 1, 1, "700m", PROPERTIES)
        stop_spark()
        assert is_empty(Path(os.environ["TMPDIR"]))


def test_a_cross_validation_finds_a_model_that_predicts_after_it_is_loaded(
    spark: Any, tmp_path: Path
) -> None:
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.classification import LogisticRegression as SparkRegression
    from pyspark.ml.evaluation import BinaryClassificationEvaluator
    from pyspark.ml.feature import StandardScaler, StringIndexer, VectorAssembler
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder

    tumors = load_breast_cancer(as_frame=True)
    frame = tumors.frame.rename(columns=lambda name: name.replace(" ", "_"))
    columns = [name for name in frame.columns if name != "target"]
    frame["diagnosis"] = tumors.target_names[frame.pop("target")].astype(str)
    frame["row"] = range(len(frame))
    file = tmp_path / "tumors.parquet"
    frame.to_parquet(file, index=False)
    table = spark.read.parquet(str(file)).cache()
    train, test = table.where("row % 4 != 0"), table.where("row % 4 = 0")

    label = StringIndexer(inputCol="diagnosis", outputCol="label", stringOrderType="alphabetDesc")
    vector = VectorAssembler(inputCols=columns, outputCol="vector")
    scaler = StandardScaler(inputCol="vector", outputCol="features", withMean=True)
    regression = SparkRegression(maxIter=30)
    grid = ParamGridBuilder().addGrid(regression.regParam, [0.01, 100.0]).build()
    evaluator = BinaryClassificationEvaluator()
    search = CrossValidator(
        estimator=Pipeline(stages=[label, vector, scaler, regression]),
        estimatorParamMaps=grid,
        evaluator=evaluator,
        numFolds=2,
        seed=1,
        parallelism=2,
    )
    found = search.fit(train)
    assert len(found.avgMetrics) == 2
    best = found.bestModel
    assert best.stages[0].labels == ["malignant", "benign"]
    area = evaluator.evaluate(found.transform(test))

    # The same model of scikit-learn: its C is 1 / (n * regParam) of the better parameter.
    parameter = [0.01, 100.0][found.avgMetrics.index(max(found.avgMetrics))]
    known, unknown = frame[frame.row % 4 != 0], frame[frame.row % 4 == 0]
    mean, deviation = known[columns].mean(), known[columns].std()
    other = LogisticRegression(C=1 / (len(known) * parameter), max_iter=1000)
    other.fit((known[columns] - mean) / deviation, known.diagnosis == "benign")
    probabilities = other.predict_proba((unknown[columns] - mean) / deviation)[:, 1]
    expected = roc_auc_score(unknown.diagnosis == "benign", probabilities)
    assert area == pytest.approx(expected, abs=0.01)

    best.save(str(tmp_path / "model"))
    found.save(str(tmp_path / "search"))
    assert CrossValidatorModel.load(str(tmp_path / "search")).avgMetrics == found.avgMetrics
    model = PipelineModel.load(str(tmp_path / "model"))
    scored = model.transform(test.select("row", *columns, "diagnosis"))
    benign = vector_to_array("probability")[1].alias("benign")
    scored.select("row", benign).write.parquet(str(tmp_path / "predictions"))
    written = spark.read.parquet(str(tmp_path / "predictions")).orderBy("row").collect()
    assert [row["row"] for row in written] == list(unknown.row)
    assert [row["benign"] for row in written] == pytest.approx(list(probabilities), abs=0.05)
