"""TFRecord files: compared with protobuf and another implementation of the checksum."""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from prediction_cases import read_output
from scale import scaled
from sklearn.linear_model import LinearRegression

import hyperplane
from hyperplane.errors import ReadError
from hyperplane.ml import predict_files
from hyperplane.ml.prediction.tf_records import crc32c, parse_example, read_records


def make_example_class() -> Any:
    """Return the class of ``tf.train.Example``, from its published fields."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, kind in (
        ("BytesList", kinds.TYPE_BYTES), ("FloatList", kinds.TYPE_FLOAT),
        ("Int64List", kinds.TYPE_INT64),
    ):  # fmt: skip
        file.message_type.add(name=name).field.add(
            name="value", number=1, type=kind, label=kinds.LABEL_REPEATED
        )
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    lists = (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List"))
    for number, (field, name) in enumerate(lists, 1):
        feature.field.add(
            name=field, number=number, type=kinds.TYPE_MESSAGE, type_name=f".t.{name}",
            label=kinds.LABEL_OPTIONAL, oneof_index=0,
        )  # fmt: skip
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(
        name="value", number=2, type=kinds.TYPE_MESSAGE, type_name=".t.Feature",
        label=kinds.LABEL_OPTIONAL,
    )  # fmt: skip
    features.field.add(
        name="feature", number=1, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_REPEATED,
        type_name=".t.Features.FeatureEntry",
    )  # fmt: skip
    file.message_type.add(name="Example").field.add(
        name="features", number=1, type=kinds.TYPE_MESSAGE, type_name=".t.Features",
        label=kinds.LABEL_OPTIONAL,
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


EXAMPLE = make_example_class()


def encode(values: dict[str, list[Any]]) -> bytes:
    """Return an Example with lists of floats, integers or texts."""
    example = EXAMPLE()
    for name, items in values.items():
        feature = example.features.feature[name]
        if all(isinstance(item, int) for item in items):
            feature.int64_list.value.extend(items)
        elif all(isinstance(item, float) for item in items):
            feature.float_list.value.extend(items)
        else:
            feature.bytes_list.value.extend(item.encode() for item in items)
    data: bytes = example.SerializeToString()
    return data


def masked(data: bytes) -> bytes:
    value = google_crc32c.value(data)
    return struct.pack("<I", (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def write_records(path: Path, messages: list[bytes]) -> None:
    with path.open("wb") as opened:
        for message in messages:
            length = struct.pack("<Q", len(message))
            opened.write(length + masked(length) + message + masked(message))


FLOATS = st.lists(st.floats(width=32, allow_nan=False), min_size=1)
INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1)
TEXTS = st.lists(st.text(), min_size=1)


@given(st.dictionaries(st.text(), FLOATS | INTEGERS | TEXTS))
@settings(max_examples=scaled(100, 2000), deadline=None)
def test_examples_of_protobuf_are_parsed(values: dict[str, list[Any]]) -> None:
    expected = {name: each[0] if len(each) == 1 else each for name, each in values.items()}
    assert parse_example(encode(values)) == expected


@given(st.binary(max_size=40))
@settings(max_examples=scaled(200, 5000), deadline=None)
def test_any_bytes_are_an_example_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse_example(data), dict)


@given(st.binary())
@settings(max_examples=scaled(50, 500), deadline=None)
def test_the_checksum_equals_that_of_google(data: bytes) -> None:
    assert crc32c(data) == google_crc32c.value(data)


def test_a_changed_byte_or_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    write_records(tmp_path / "a", [encode({"a": [1.0]}), encode({"a": [2.0]})])
    data = (tmp_path / "a").read_bytes()
    assert len(list(read_records(io.BytesIO(data)))) == 2
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 4
        with pytest.raises(ValueError, match="record"):
            list(read_records(io.BytesIO(bytes(changed))))
    whole = len(data) // 2
    for end in (*range(1, whole), *range(whole + 1, len(data))):
        with pytest.raises(ValueError, match="ends within a record"):
            list(read_records(io.BytesIO(data[:end])))


def test_files_that_are_compressed_with_gzip_need_no_suffix(tmp_path: Path) -> None:
    write_records(tmp_path / "a", [encode({"a": [1.0]}), encode({"a": [2.0]})])
    data = (tmp_path / "a").read_bytes()
    packed = gzip.compress(data)
    assert list(read_records(io.BytesIO(packed))) == list(read_records(io.BytesIO(data)))
    with pytest.raises(EOFError):
        list(read_records(io.BytesIO(packed[:-9])))
    for other in (zlib.compress(data), b"a,b\n1,2\n3,4\n"):
        with pytest.raises(ValueError, match="no TFRecord, or is compressed in another way"):
            list(read_records(io.BytesIO(other)))
    # A record whose length begins with the same bytes as gzip.
    write_records(tmp_path / "b", [bytes(0x8B1F)])
    with (tmp_path / "b").open("rb") as opened:
        assert list(read_records(opened)) == [bytes(0x8B1F)]


def test_records_are_predicted(tmp_path: Path) -> None:
    model = LinearRegression().fit([[0.0, 1.0], [1.0, 5.0], [2.0, 0.0]], [0.0, 1.0, 2.0])
    hyperplane.save(model, tmp_path / "model.skops")
    messages = [encode({"b": [5], "a": [0.5 * number]}) for number in range(100)]
    messages[7] = encode({"a": [1.0]})
    messages[9] = b"\xff\xff"
    write_records(tmp_path / "in.tfrecord", messages)
    result = predict_files(
        tmp_path / "model.skops", tmp_path / "in.tfrecord", tmp_path / "out", columns=["a", "b"]
    )
    assert (result.rows, result.errors) == (100, 2)
    errors = read_output(tmp_path / "out", "errors_stats", 0, 1)[1:]
    assert [line["row"] for line in errors] == [7, 9]
    lines = read_output(tmp_path / "out", "results", 0, 1)
    rows = [line["row"] for line in lines]
    expected = model.predict([[0.5 * row, 5] for row in rows])
    np.testing.assert_allclose([line["prediction"] for line in lines], expected, atol=1e-12)
    (tmp_path / "cut.tfrecord").write_bytes((tmp_path / "in.tfrecord").read_bytes()[:-1])
    with pytest.raises(ReadError, match=r"cut.tfrecord: cannot be read as tf-record"):
        predict_files(tmp_path / "model.skops", tmp_path / "cut.tfrecord", tmp_path / "out2")


def test_floats_of_a_wrong_length_are_a_value_error() -> None:
    def wrap(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    feature = wrap(2, wrap(1, b"123"))
    with pytest.raises(ValueError, match="3 bytes, not a multiple of 4"):
        parse_example(wrap(1, wrap(1, wrap(1, b"a") + wrap(2, feature))))
