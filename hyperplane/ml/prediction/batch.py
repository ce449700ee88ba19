"""Batch prediction: ``predict_files`` writes the predictions of each input file."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hyperplane.core.active_cluster import get_active_client
from hyperplane.core.dask_internals.workers import find_worker_folder
from hyperplane.core.errors import ReadError
from hyperplane.core.progress import iterate_completed, show_progress
from hyperplane.core.public_calls import check_call
from hyperplane.core.text_tables import as_html, as_text
from hyperplane.core.units import plural
from hyperplane.ml.prediction.batch_request import (
    ERRORS,
    RESULTS,
    BatchRequest,
    find_finished,
    parse_batch_request,
)
from hyperplane.ml.prediction.model_files import load_model
from hyperplane.ml.prediction.model_formats import DataFormat
from hyperplane.objectstore.listing import has_changed
from hyperplane.objectstore.locations import Location
from hyperplane.storage.saving import save

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class PredictionResult:
    """The result of :func:`predict_files`.

    Parameters
    ----------
    output : str
        Folder of the outputs, without secrets.
    files : int
        Input files.
    finished_before : int
        Input files whose outputs existed; they were not predicted again.
    rows, errors : int
        Rows of the files that were predicted now, and those of them that the model refused.
    model_loads : int
        Worker processes that loaded the model, each of them once; 0 without a cluster.
    seconds : float
        Duration of the call.
    """

    output: str
    files: int
    finished_before: int
    rows: int
    errors: int
    model_loads: int
    seconds: float

    def as_rows(self) -> list[tuple[str, str]]:
        """Return labels and values for display."""
        now = self.files - self.finished_before
        lines = [
            ("output", self.output),
            (
                "predicted",
                f"{plural(now, 'file')} with {plural(self.rows, 'row')} in {self.seconds:.1f} s",
            ),
        ]
        if self.finished_before:
            before = f"{plural(self.finished_before, 'file')} of {self.files}, by an earlier call"
            lines.append(("finished", before))
        if self.errors:
            refused = "all of these" if self.errors == self.rows else plural(self.errors, "row")
            lines.append(("errors", f"{refused}; see {ERRORS}-*"))
        return lines

    def __str__(self) -> str:
        return as_text(self.as_rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.as_rows())


@check_call(outcome="nothing was predicted")
def predict_files(
    model: str | os.PathLike[str],
    input: Paths,  # noqa: A002
    output: str | os.PathLike[str],
    *,
    data_format: DataFormat | None = None,
    batch_size: int = 64,
    max_workers: int = 10,
    columns: Sequence[str] | None = None,
    trusted: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> PredictionResult:
    r"""Predict all rows of files with a saved model, on the cluster or in this process.

    Each input file is one shard: a task of the cluster that writes two files of JSON lines.
    ``prediction.results-00000-of-00012`` has ``{"row": 3, "prediction": 0.5}`` for each predicted
    row of the first file. ``prediction.errors_stats-00000-of-00012`` has a line with the numbers
    of rows, and ``{"row": 4, "error": "..."}`` for each row that the model refused.

    Both are published when they are complete. If a call is interrupted, the same call predicts only
    the files without results.

    Parameters
    ----------
    model : str or path
        A file ``.skops``, ``.joblib`` or ``.pkl`` of scikit-learn, ``.json`` or ``.ubj`` of
        XGBoost, ``.keras`` of Keras, or ``.pt2`` of ``torch.export``; a folder with one such file
        named ``model``; the folder of a SavedModel of TensorFlow; or a model of a
        :class:`ModelRegistry`, ``registry/name`` or ``registry/name/version``.
    input : str, path, or list of these
        Files, globs, folders, or URLs.
    output : str or path
        Folder of the outputs.
    data_format : {"json", "csv", "parquet", "tf-record"}, optional
        Format of the files; that of their suffix if omitted. A line of JSON is an object with the
        columns, a list of values, a number or a text.
    batch_size : int
        Rows of one call of the model.
    max_workers : int
        Maximum number of files that are predicted at the same time.
    columns : list of str, optional
        Columns that the model gets. By default those it was fitted with, or, if it was fitted
        without names, all columns in the order of the file.
    trusted : bool
        Whether to load a model that can run code, as for :func:`hyperplane.load`.
    storage_options : mapping, optional
        Options of the file system.

    Returns
    -------
    PredictionResult
        Numbers of files, rows and errors.

    Raises
    ------
    RequestError
        With every fault, or if ``output`` has outputs of another model, other or changed input
        files, or another batch size.
    ReadError
        If a file cannot be read, changes meanwhile or lacks a column of the model. Files that were
        predicted before keep their outputs.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import hyperplane
    >>> from hyperplane.ml import predict_files
    >>> from sklearn.linear_model import LogisticRegression
    >>> folder = Path(tempfile.mkdtemp())
    >>> model = LogisticRegression().fit([[0.0], [1.0]], ["on time", "late"])
    >>> _ = hyperplane.save(model, folder / "model.skops")
    >>> _ = (folder / "a.jsonl").write_text("[2.0]\n[null]\n")
    >>> result = predict_files(folder / "model.skops", folder / "a.jsonl", folder / "out")
    >>> result.rows, result.errors
    (2, 1)
    >>> print((folder / "out" / "prediction.results-00000-of-00001").read_text().strip())
    {"row": 0, "prediction": "late"}
    """
    return prepare_batch(
        model,
        input,
        output,
        data_format=data_format,
        batch_size=batch_size,
        max_workers=max_workers,
        columns=columns,
        trusted=trusted,
        storage_options=storage_options,
    ).run()


@check_call(outcome="nothing was predicted")
def prepare_batch(
    model: Any,
    input: Any,  # noqa: A002
    output: Any,
    **options: Any,
) -> PreparedBatch:
    """Check the arguments of :func:`predict_files`, and find the files that have outputs."""
    request = parse_batch_request(model, input, output, **options)
    finished = find_finished(request)
    missing = [index for index in range(len(request.files)) if index not in finished]
    return PreparedBatch(request, missing)


@dataclass(frozen=True)
class PreparedBatch:
    """A request, and the indexes of its files without outputs."""

    request: BatchRequest
    missing: Sequence[int]

    def run(self) -> PredictionResult:
        """Predict the missing files."""
        began = time.monotonic()
        total = len(self.request.files)
        finished = total - len(self.missing)
        reports = []
        with show_progress("predicted files", len(self.missing)) as advance:
            try:
                for report in _predict_shards(self.request, self.missing):
                    reports.append(report)
                    advance()
            except Exception as error:
                done = finished + len(reports)
                error.add_note(
                    f"outputs of {done} of {plural(total, 'file')} are written; the same call "
                    "predicts only the others"
                )
                raise
        return PredictionResult(
            self.request.output.url,
            total,
            finished,
            sum(report.rows for report in reports),
            sum(report.errors for report in reports),
            sum(report.loaded for report in reports),
            time.monotonic() - began,
        )


@dataclass(frozen=True)
class _ShardReport:
    """Rows and refused rows of a file, and whether the model was loaded for it."""

    rows: int
    errors: int
    loaded: bool


def _predict_shards(request: BatchRequest, indexes: Sequence[int]) -> Iterator[_ShardReport]:
    """Predict files on the cluster, or in this process; yield reports as files are done."""
    client = get_active_client()
    if client is None:
        for index in indexes:
            yield _predict_shard(_shard_of(request, index))
        return
    from distributed import as_completed

    waiting = iter(indexes)

    def submit_next() -> list[Any]:
        index = next(waiting, None)
        if index is None:
            return []
        shard = _shard_of(request, index)
        return [client.submit(_predict_shard, shard, pure=False, key=f"predict-{_new_key(index)}")]

    first = [future for _ in range(request.max_workers) for future in submit_next()]
    running = as_completed(first)
    pending = set(first)
    try:
        for future in iterate_completed(client, running):
            pending.discard(future)
            yield future.result()
            for new in submit_next():
                pending.add(new)
                running.add(new)
    finally:
        if pending and client.status == "running":  # a request of a closed client would wait
            client.cancel(list(pending))


def _new_key(index: int) -> str:
    return f"{index:05d}-{os.urandom(8).hex()}"


@dataclass(frozen=True)
class _Shard:
    """A request for one of its files."""

    request: BatchRequest
    index: int
    results: str
    errors: str


def _shard_of(request: BatchRequest, index: int) -> _Shard:
    """Return a shard that has only its own file, so that tasks of many files are small."""
    alone = replace(
        request, files=(request.files[index],), formats=(request.formats[index],), max_workers=1
    )
    names = [request.output_path(kind, index) for kind in (RESULTS, ERRORS)]
    return _Shard(alone, index, *names)


def _predict_shard(shard: _Shard) -> _ShardReport:
    """Predict one file and publish its outputs, the results last."""
    # Here, because they import pandas, which a request that is refused does not need.
    from hyperplane.ml.prediction.instances import read_rows
    from hyperplane.ml.prediction.rows import predict_rows

    request = shard.request
    predictor, loaded = load_model(request.model)
    (file,), (data_format,) = request.files, request.formats
    predicted, refused = 0, 0
    with tempfile.TemporaryDirectory(
        prefix="hyperplane-predict-", dir=find_worker_folder()
    ) as folder:
        results, reasons = Path(folder, "results"), Path(folder, "errors")
        with results.open("w") as result_lines, reasons.open("w") as error_lines:
            for rows in read_rows(
                file,
                data_format,
                request.batch_size,
                request.columns,
                predictor,
                request.model.url,
            ):
                found = predict_rows(predictor, rows, request.batch_size, request.columns)
                predicted += len(found.values)
                refused += len(found.errors)
                for number, value in found.values:
                    result_lines.write(json.dumps({"row": number, "prediction": value}) + "\n")
                for number, reason in found.errors:
                    error_lines.write(json.dumps({"row": number, "error": reason}) + "\n")
        if has_changed(file):
            raise ReadError(
                file.url, "has changed since the prediction began; predict into another folder"
            )
        report = _ShardReport(predicted + refused, refused, loaded)
        stats = {"input": file.url, "rows": report.rows, "predictions": predicted}
        errors = Path(folder, "errors_stats")
        _prepend(json.dumps({**stats, "errors": refused}) + "\n", reasons, errors)
        _publish(request, errors, shard.errors)
        _publish(request, results, shard.results)  # last: it marks a finished shard
    return report


def _prepend(line: str, source: Path, to: Path) -> None:
    """Write a line and the content of a file."""
    with source.open() as opened, to.open("w") as new:
        new.write(line)
        new.writelines(opened)


def _publish(request: BatchRequest, file: Path, path: str) -> None:
    """Copy a local file to an output, atomically."""
    store = request.output.store
    options = dict(store.options) or None
    save(file, Location(store, path).address, mode="overwrite", storage_options=options)
