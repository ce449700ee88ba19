"""``read_records`` returns every record once and in order, however files are divided."""

import bz2
import gzip
import json
import lzma
import warnings

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.bag import bad_records, read_records
from hyperplane.collections.bags import lines as lines_module
from hyperplane.errors import BadLines, BadLinesWarning, ReadError, RequestError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)
)
RECORDS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)
GOOD = st.builds(
    lambda record, plain: json.dumps(record, ensure_ascii=plain).encode(errors="replace"),
    RECORDS,
    st.booleans(),
)
ODD = st.sampled_from(
    [
        *(b"", b" ", b"\t\r", b' {"a": 1} ', b"{", b"5", b"null", b'["x"]', b'"x"', b"[" * 3000),
        *(b'{"a": "\xff"}', b"\xe4\xb8", b'{"a": NaN}', b'{"a": "x\ty"}', b'{"a": 01}', b"{}\0"),
        *(b'{"a":1}{"b":2}', b"\xef\xbb\xbf{}", b'{"n": %s}' % (b"1" * 5000), b'{"a":"\\u2028"}'),
    ]
)


def write(content, name="a.jsonl"):
    store = fsspec.filesystem("memory")
    store.pipe_file(f"/records/{name}", content)
    return f"memory://records/{name}"


def plain(content):
    """Return records and numbers of bad lines, parsed line by line in plain Python."""
    good, bad = [], []
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            text = line.decode()
            if text.strip(" \t\r"):
                record = json.loads(text)
                (good if isinstance(record, dict) else bad).append(
                    record if isinstance(record, dict) else number
                )
        except (ValueError, RecursionError):
            bad.append(number)
    return good, bad


def compute(bag):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BadLinesWarning)
        return bag.compute(scheduler="sync")


@settings(max_examples=scaled(16, 80))
@given(
    st.lists(st.tuples(GOOD | ODD, st.sampled_from([b"\n", b"\r\n"])), max_size=12),
    st.booleans(),
    st.booleans(),
    st.integers(1, 40),
    st.integers(1, 64),
)
@example([(b'{"a":"\xe4\xb8\xad"}', b"\n")] * 3, True, False, 40, 3)
def test_each_record_is_read_once_however_the_file_is_divided(pieces, bom, ended, parts, step):
    content = b"".join(line + end for line, end in pieces)
    content = (b"\xef\xbb\xbf" if bom else b"") + (content if ended else content[:-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "BLOCK_BYTES", step)
        bag = read_records(write(content), blocksize=max(1, len(content) // parts), limit=1)
        good, bad = plain(content)
        assert compute(bag) == good
        assert [entry["line"] for entry in compute(bad_records(bag))] == bad


@settings(max_examples=scaled(20, 100))
@given(
    st.text("\r\n\x85\u2028ab") | st.text(),
    st.integers(1, 30),
    st.integers(1, 9),
    st.sampled_from(["utf-8", "cp1252"]),
)
def test_lines_of_text_are_those_between_line_ends(text, blocksize, step, encoding):
    content = text.encode(encoding, errors="ignore")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "BLOCK_BYTES", step)
        url = write(content, "a.txt")
        found = compute(read_records(url, blocksize=blocksize, encoding=encoding, limit=1))
    expected = []
    for line in content.removeprefix(b"\xef\xbb\xbf" if encoding == "utf-8" else b"").split(b"\n"):
        try:
            expected.append(line.decode(encoding).removesuffix("\r"))
        except UnicodeDecodeError:
            continue
    if content.endswith(b"\n") or not content.removeprefix(b"\xef\xbb\xbf"):
        expected.pop()
    assert found == expected


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda data: pa.compress(data, "zstd", asbytes=True)),
    ],
)
def test_compressed_files_are_read_completely_and_a_truncated_one_is_named(tmp_path, suffix, pack):
    records = [{"n": n, "text": f"ä{n * 7919}"} for n in range(3000)]
    packed = pack("\n".join(json.dumps(record) for record in records).encode())
    file = tmp_path / f"a.jsonl{suffix}"
    file.write_bytes(packed)
    bag = read_records(file, blocksize=100)
    assert bag.npartitions == 1
    assert bag.compute(scheduler="sync") == records
    file.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ReadError, match=rf"a\.jsonl{suffix}: .*truncated"):
        read_records(file).compute(scheduler="sync")


def test_the_encoding_utf_8_sig_is_accepted(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"n": 1}\n{"n": 2}\n', encoding="utf-8-sig")
    for encoding in ("utf-8-sig", "UTF_8_SIG", "utf-8"):
        records = read_records(file, encoding=encoding, limit=0)
        assert records.compute(scheduler="sync") == [{"n": 1}, {"n": 2}]


def test_a_folder_lists_all_its_files_in_natural_order(tmp_path):
    for name in ("part-10.jsonl", "part-2.jsonl.gz", "2024/a.jsonl", "_SUCCESS", ".part.crc"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        data = json.dumps({"name": name}).encode()
        file.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    names = read_records(tmp_path).pluck("name").compute(scheduler="sync")
    assert names == ["2024/a.jsonl", "part-2.jsonl.gz", "part-10.jsonl"]


def test_a_file_of_unknown_size_is_one_partition(monkeypatch):
    url = write(b'{"n": 1}\n' * 100)
    store, whole = fsspec.filesystem("memory"), MemoryFileSystem.info
    monkeypatch.setattr(
        MemoryFileSystem,
        "info",
        lambda self, path, **how: {**whole(self, path, **how), "size": None},
    )
    assert store.info("/records/a.jsonl")["size"] is None
    bag = read_records(url, blocksize=50)
    assert bag.npartitions == 1
    assert len(bag.compute(scheduler="sync")) == 100


def test_files_of_two_stores_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(RequestError, match=r"a\.jsonl' and 'memory://.*URLs of one file system"):
        read_records([tmp_path / "a.jsonl", write(b"{}\n")])


def test_two_gzip_members_in_a_file_are_both_read(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"n":1}\n') + gzip.compress(b'{"n":2}\n'))
    assert read_records(tmp_path / "a.json.gz").compute(scheduler="sync") == [{"n": 1}, {"n": 2}]


def test_a_file_that_is_not_compressed_despite_its_suffix_is_named(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(b'{"n": 1}\n')
    with pytest.raises(ReadError, match=r"a\.jsonl\.gz: BadGzipFile"):
        read_records(tmp_path / "a.jsonl.gz").compute(scheduler="sync")


def test_a_deleted_file_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}\n")
    bag = read_records(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(ReadError, match=r"a\.jsonl: the file was deleted"):
        bag.compute(scheduler="sync")


def test_small_files_are_joined_in_order_and_large_ones_divided(tmp_path):
    for number in range(400):
        (tmp_path / f"{number:03}.jsonl").write_text(json.dumps({"n": number}))
    bag = read_records(str(tmp_path / "*.jsonl"))
    assert bag.npartitions < 40
    assert bag.pluck("n").compute(scheduler="sync") == list(range(400))
    (tmp_path / "000.jsonl").write_text('{"n": 0}\n' * 10_000)
    assert read_records(str(tmp_path / "000.jsonl"), blocksize="10kB").npartitions == 9


def test_all_faults_of_a_call_are_reported_together(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError) as caught:
        read_records(
            [
                *(tmp_path / "a.jsonl", tmp_path / "gone.jsonl"),
                *(str(tmp_path / "no*.jsonl"), tmp_path / "empty"),
            ],
            format="xml",
            blocksize="a lot",
            encoding="utf-16",
            limit=3,
        )
    assert [fault.where for fault in caught.value.faults] == [
        *("format", "blocksize", "encoding", "limit"),
        *("urls", "urls", "urls"),
    ]
    assert "no*.jsonl" in str(caught.value)
    assert "gone.jsonl" in str(caught.value)
    assert "empty'" in str(caught.value)


@pytest.mark.parametrize("urls", [[], 5, "", [None], "nosuchprotocol://x/y.json"])
def test_values_that_are_not_urls_are_refused(urls):
    with pytest.raises(RequestError, match="urls"):
        read_records(urls)


def test_the_format_comes_from_the_names_or_the_caller(tmp_path):
    for name in ("a.jsonl", "b.txt", "c.dat"):
        (tmp_path / name).write_text('{"n": 1}\n')
    with pytest.raises(RequestError, match=r"c\.dat.*write format="):
        read_records(tmp_path / "c.dat")
    with pytest.raises(RequestError, match="files of one format"):
        read_records([tmp_path / "a.jsonl", tmp_path / "b.txt"])
    assert read_records(tmp_path / "c.dat", format="json").compute(scheduler="sync") == [{"n": 1}]
    assert read_records(tmp_path / "b.txt").compute(scheduler="sync") == ['{"n": 1}']


def test_messages_have_no_secrets_of_the_store(tmp_path):
    (tmp_path / "a.jsonl").write_text("x\n")
    options = {"token": "s3cr3t"}
    bag = read_records(str(tmp_path / "a.jsonl"), storage_options=options)
    with pytest.raises(BadLines) as caught:
        bag.compute(scheduler="sync")
    assert "s3cr3t" not in str(caught.value)
    assert "s3cr3t" not in repr(bag.dask.layers[bag.name].source)
    assert not any("s3cr3t" in repr(task) for task in dict(bag.dask).values())
