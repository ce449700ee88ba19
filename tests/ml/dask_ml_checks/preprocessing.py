"""Checks of preprocessing, imputation, column transformers, text features and generated data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import sklearn.compose
import sklearn.feature_extraction.text
import sklearn.impute
import sklearn.preprocessing
from ml.dask_ml_checks.check import ROWS, Check, Data, close, compare_transforms

_FRAMES = "dask_ml.compose._column_transformer"
_WORDS = ["late flight", "flight on time", "late again", "time"]


def _scaler(
    name: str, tolerance: float = 1e-6, of_frame: bool = False, **options: Any
) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.preprocessing as module

        ours = getattr(module, name)(**options)
        theirs = getattr(sklearn.preprocessing, name)(**options)
        collection = data.numbers_df if of_frame else data.X
        result, _ = compare_transforms(ours, theirs, collection, data.rows, tolerance)
        assert isinstance(result, dd.DataFrame) == of_frame
        if hasattr(ours, "inverse_transform"):
            close(ours.inverse_transform(result), data.rows, tolerance)

    return run


def _encoder(name: str, **options: Any) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.preprocessing as ours

        theirs = getattr(sklearn.preprocessing, name)(**options)
        coded, _ = compare_transforms(
            getattr(ours, name)(**options), theirs, data.df[["kind"]], data.frame[["kind"]]
        )
        assert hasattr(coded, "dask")

    return run


def _one_hot_encoder_array(data: Data) -> None:
    from dask_ml.preprocessing import OneHotEncoder

    values = np.floor(data.rows[:, :2])
    compare_transforms(
        OneHotEncoder(), sklearn.preprocessing.OneHotEncoder(), data.to_dask(values), values
    )


def _label_encoder_array(data: Data) -> None:
    from dask_ml.preprocessing import LabelEncoder

    labels = data.classes * 3 + 2
    ours, theirs = LabelEncoder(), sklearn.preprocessing.LabelEncoder()
    coded, _ = compare_transforms(ours, theirs, data.to_dask(labels), labels)
    close(ours.inverse_transform(coded), labels)


def _label_encoder_text(data: Data) -> None:
    from dask_ml.preprocessing import LabelEncoder

    labels = data.frame["kind"].astype(str).to_numpy().astype("U1")
    compare_transforms(
        LabelEncoder(), sklearn.preprocessing.LabelEncoder(), data.to_dask(labels), labels
    )


def _label_encoder_series(data: Data) -> None:
    from dask_ml.preprocessing import LabelEncoder

    ours, theirs = LabelEncoder(), sklearn.preprocessing.LabelEncoder()
    coded, _ = compare_transforms(ours, theirs, data.df["kind"], data.frame["kind"])
    labels = ours.inverse_transform(coded.compute())
    assert list(labels) == list(data.frame["kind"])


def _label_encoder_fit_transform(data: Data) -> None:
    from dask_ml.preprocessing import LabelEncoder

    expected = sklearn.preprocessing.LabelEncoder().fit_transform(data.frame["kind"])
    close(LabelEncoder().fit_transform(data.df["kind"]), expected)


def _label_encoder_inverse(data: Data) -> None:
    from dask_ml.preprocessing import LabelEncoder

    ours = LabelEncoder().fit(data.df["kind"])
    codes = data.to_dask(data.frame["kind"].cat.codes.to_numpy())
    assert list(ours.inverse_transform(codes).compute()) == list(data.frame["kind"])


def _categorizer(data: Data) -> None:
    from dask_ml.preprocessing import Categorizer

    frame = data.df.assign(kind=data.df["kind"].astype("string"))
    categorical = Categorizer(columns=["kind"]).fit_transform(frame)["kind"]
    assert categorical.cat.known
    close(categorical.cat.codes, data.frame["kind"].cat.codes)


def _dummy_encoder(data: Data) -> None:
    from dask_ml.preprocessing import DummyEncoder

    encoder = DummyEncoder()
    coded = encoder.fit_transform(data.df[["a", "kind"]])
    pd.testing.assert_frame_equal(coded.compute(), pd.get_dummies(data.frame[["a", "kind"]]))
    back = encoder.inverse_transform(coded).compute()
    assert list(back["kind"]) == list(data.frame["kind"])


def _ordinal_encoder_inverse(data: Data) -> None:
    from dask_ml.preprocessing import OrdinalEncoder

    encoder = OrdinalEncoder()
    coded = encoder.fit_transform(data.df[["a", "kind"]])
    back = encoder.inverse_transform(coded).compute()
    assert list(back["kind"]) == list(data.frame["kind"])


def _block_transformer(data: Data) -> None:
    from dask_ml.preprocessing import BlockTransformer

    theirs = sklearn.preprocessing.FunctionTransformer(np.square)
    compare_transforms(BlockTransformer(np.square), theirs, data.X, data.rows)
    compare_transforms(BlockTransformer(np.square), theirs, data.numbers_df, data.numbers)


def _polynomial(of_frame: bool) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.preprocessing import PolynomialFeatures

        ours = PolynomialFeatures(2, preserve_dataframe=of_frame)
        theirs = sklearn.preprocessing.PolynomialFeatures(2)
        result, _ = compare_transforms(
            ours, theirs, data.numbers_df if of_frame else data.X, data.rows
        )
        if of_frame:
            assert list(result.columns)[:3] == ["1", "a", "b"]

    return run


def _imputer(strategy: str, of_frame: bool) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.impute import SimpleImputer

        rows = np.where(data.rows > 2, np.nan, np.round(data.rows, 1))
        options = {"fill_value": 7.0} if strategy == "constant" else {}
        frame = pd.DataFrame(rows, columns=data.numbers.columns)
        collection = dd.from_pandas(frame, npartitions=2) if of_frame else data.to_dask(rows)
        # The median of partitions is an approximate one.
        compare_transforms(
            SimpleImputer(strategy=strategy, **options),
            sklearn.impute.SimpleImputer(strategy=strategy, **options),
            collection,
            frame,
            0.3 if strategy == "median" else 1e-6,
        )

    return run


def _column_transformer_pandas(data: Data) -> None:
    from dask_ml.compose import ColumnTransformer
    from dask_ml.preprocessing import StandardScaler

    scaled = ColumnTransformer([("s", StandardScaler(), ["a", "b"])]).fit_transform(data.frame)
    close(scaled, sklearn.preprocessing.StandardScaler().fit_transform(data.frame[["a", "b"]]))


def _column_transformer_dask(data: Data) -> None:
    from dask_ml.compose import make_column_transformer
    from dask_ml.preprocessing import MinMaxScaler, StandardScaler

    ours = make_column_transformer((StandardScaler(), ["a", "b"]), (MinMaxScaler(), ["c"]))
    prep = sklearn.preprocessing
    theirs = sklearn.compose.make_column_transformer(
        (prep.StandardScaler(), ["a", "b"]), (prep.MinMaxScaler(), ["c"])
    )
    expected = theirs.fit_transform(data.frame)
    close(ours.fit_transform(data.df), expected)
    close(ours.transform(data.df), expected)


def _text_features(name: str, of_vocabulary: bool = False) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.feature_extraction.text as ours

        options = {"vocabulary": {"late": 0, "time": 1}} if of_vocabulary else {}
        encoder = getattr(ours, name)(**options)
        theirs = getattr(sklearn.feature_extraction.text, name)(**options)
        bag = db.from_sequence(_WORDS, npartitions=2)
        coded = encoder.fit_transform(bag)
        assert coded.numblocks == (2, 1)
        expected = theirs.fit_transform(_WORDS)
        close(coded, expected)
        close(encoder.transform(bag), expected)

    return run


def _feature_hasher(data: Data) -> None:
    from dask_ml.feature_extraction.text import FeatureHasher

    options = {"n_features": 16, "input_type": "string"}
    words = [sentence.split() for sentence in _WORDS]
    coded = FeatureHasher(**options).transform(db.from_sequence(words, npartitions=2))
    assert coded.numblocks == (2, 1)
    theirs = sklearn.feature_extraction.FeatureHasher(**options)
    close(coded, theirs.transform(words))


def _generated(name: str, **options: Any) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.datasets as ours

        made = getattr(ours, name)(n_samples=ROWS, chunks=200, random_state=0, **options)
        assert made[0].shape == (ROWS, 5)
        again = getattr(ours, name)(n_samples=ROWS, chunks=200, random_state=0, **options)
        close(made[0], again[0].compute())
        labels = made[1].compute()
        assert labels.shape == (ROWS,)
        assert len(np.unique(labels)) > 1

    return run


def _generated_frame(data: Data) -> None:
    from dask_ml.datasets import make_classification_df

    frame, labels = make_classification_df(
        n_samples=ROWS, n_features=5, chunks=200, random_state=0, response_rate=0.5
    )
    assert frame.npartitions == 2
    assert frame.compute().shape == (ROWS, 5)
    assert set(labels.compute()) == {0, 1}


CHECKS: dict[str, Check] = {
    "preprocessing.StandardScaler": Check(_scaler("StandardScaler")),
    "preprocessing.StandardScaler of a dataframe": Check(_scaler("StandardScaler", of_frame=True)),
    "preprocessing.MinMaxScaler": Check(_scaler("MinMaxScaler")),
    "preprocessing.MinMaxScaler of a dataframe": Check(_scaler("MinMaxScaler", of_frame=True)),
    "preprocessing.RobustScaler": Check(_scaler("RobustScaler", 0.5)),
    "preprocessing.RobustScaler of a dataframe": Check(
        _scaler("RobustScaler", 0.5, of_frame=True), "dask_ml.preprocessing.data"
    ),
    "preprocessing.QuantileTransformer": Check(
        _scaler("QuantileTransformer", 0.1, n_quantiles=ROWS), "dask_ml.preprocessing.data"
    ),
    "preprocessing.PolynomialFeatures": Check(_polynomial(of_frame=False)),
    "preprocessing.PolynomialFeatures of a dataframe": Check(_polynomial(of_frame=True)),
    "preprocessing.OneHotEncoder": Check(_encoder("OneHotEncoder", sparse_output=False)),
    "preprocessing.OneHotEncoder of an array, sparse": Check(_one_hot_encoder_array),
    "preprocessing.OrdinalEncoder": Check(_encoder("OrdinalEncoder")),
    "preprocessing.OrdinalEncoder.inverse_transform": Check(_ordinal_encoder_inverse),
    "preprocessing.LabelEncoder": Check(_label_encoder_array),
    "preprocessing.LabelEncoder of text": Check(_label_encoder_text),
    "preprocessing.LabelEncoder of a categorical series": Check(_label_encoder_series),
    "preprocessing.LabelEncoder.fit_transform of a categorical series": Check(
        _label_encoder_fit_transform
    ),
    "preprocessing.LabelEncoder.inverse_transform of a categorical series": Check(
        _label_encoder_inverse
    ),
    "preprocessing.Categorizer": Check(_categorizer),
    "preprocessing.DummyEncoder": Check(_dummy_encoder),
    "preprocessing.BlockTransformer": Check(_block_transformer),
    "impute.SimpleImputer": Check(_imputer("mean", of_frame=False)),
    "impute.SimpleImputer of a dataframe, median": Check(_imputer("median", of_frame=True)),
    "impute.SimpleImputer of a dataframe, most_frequent": Check(
        _imputer("most_frequent", of_frame=True)
    ),
    "impute.SimpleImputer of a dataframe, constant": Check(_imputer("constant", of_frame=True)),
    "impute.SimpleImputer of an array, median": Check(
        _imputer("median", of_frame=False),
        instead="a dataframe of Dask",
        error="Can only use strategy='mean' or 'constant' with Dask Array",
        alternative=_imputer("median", of_frame=True),
    ),
    "compose.ColumnTransformer of pandas": Check(_column_transformer_pandas, _FRAMES),
    "compose.make_column_transformer of Dask": Check(_column_transformer_dask, _FRAMES),
    "feature_extraction.text.CountVectorizer": Check(_text_features("CountVectorizer")),
    "feature_extraction.text.CountVectorizer of a vocabulary": Check(
        _text_features("CountVectorizer", of_vocabulary=True)
    ),
    "feature_extraction.text.HashingVectorizer": Check(_text_features("HashingVectorizer")),
    "feature_extraction.text.FeatureHasher": Check(_feature_hasher),
    "datasets.make_classification": Check(_generated("make_classification", n_features=5)),
    "datasets.make_regression": Check(_generated("make_regression", n_features=5)),
    "datasets.make_blobs": Check(_generated("make_blobs", n_features=5)),
    "datasets.make_counts": Check(_generated("make_counts", n_features=5, n_informative=2)),
    "datasets.make_classification_df": Check(_generated_frame),
}
