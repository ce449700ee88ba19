"""Plans of many files: each file in one shard, balanced bytes, unchanged when read again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hyperplane
from hyperplane.errors import RequestError
from hyperplane.objectstore.file_sizes import iterate_file_sizes
from hyperplane.objectstore.listing import find_files
from hyperplane.shards import plan as plan_module


def write(folder: Path, sizes: list[int]) -> None:
    folder.mkdir(exist_ok=True)
    for number, size in enumerate(sizes):
        (folder / f"part-{number}.csv").write_bytes(b"x" * size)


def shares(plan: Path | str, count: int, **options) -> list[list[str]]:
    return [hyperplane.planned_files(plan, count, idx, **options) for idx in range(count)]


def faults_of(call, *arguments, **options) -> list[str]:
    with pytest.raises(RequestError) as refused:
        call(*arguments, **options)
    return [fault.where for fault in refused.value.faults]


def test_each_file_is_in_one_shard_and_the_bytes_are_balanced(tmp_path):
    write(tmp_path / "in", [50, 30, 30, 20, 10, 10, 0, 0])
    plan = hyperplane.plan_shards(tmp_path / "in", 3, tmp_path / "plan.parquet")
    assert (plan.files, plan.size, plan.largest, plan.n) == (8, 150, 50, 3)
    assert plan.imbalance == 1.0
    found = shares(plan.url, 3)
    assert sorted(path for share in found for path in share) == sorted(
        str(path) for path in (tmp_path / "in").iterdir()
    )
    assert all(share == sorted(share) for share in found)
    assert [sum(Path(path).stat().st_size for path in share) for share in found] == [50, 50, 50]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.integers(1, 12))
def test_no_shard_exceeds_the_mean_by_more_than_one_file(sizes, count):
    schema = plan_module._SCHEMA
    paths = [f"{number}" for number in range(len(sizes))]
    table, totals = plan_module._assign(plan_module.pa.table([paths, sizes], schema=schema), count)
    assert sorted(table.column("path").to_pylist()) == sorted(paths)
    assert sum(files for files, _ in totals) == len(sizes)
    assert sum(load for _, load in totals) == sum(sizes)
    first = 0
    for files, load in totals:
        part = table.slice(first, files).column("size").to_pylist()
        assert sum(part) == load
        # Without its last file a shard was the smallest one, so at most the mean.
        assert load - (min(part) if part else 0) <= sum(sizes) / count
        first += files


def test_files_of_very_different_sizes_are_balanced(monkeypatch, tmp_path):
    sizes = random.Random(1)
    files = [(f"f{number}", int(sizes.lognormvariate(14, 1.5))) for number in range(20_000)]
    monkeypatch.setattr(plan_module, "iterate_file_sizes", lambda urls, options: iter(files))
    plan = hyperplane.plan_shards("s3://bucket/in", 100, tmp_path / "plan.parquet")
    assert plan.imbalance < 1.01
    assert max(size for _, size in files) > plan.size / 100 / 4


def test_an_existing_plan_is_kept_also_if_files_were_added(tmp_path):
    write(tmp_path / "in", [5, 4, 3])
    plan = hyperplane.plan_shards([tmp_path / "in"], 2, tmp_path / "plan.parquet")
    before = shares(plan.url, 2)
    (tmp_path / "in/new.csv").write_text("x")
    assert hyperplane.plan_shards([tmp_path / "in"], 2, tmp_path / "plan.parquet") == plan
    assert shares(plan.url, 2) == before


def test_a_plan_of_other_files_or_shards_is_refused(tmp_path):
    write(tmp_path / "in", [5, 4])
    write(tmp_path / "other", [1])
    plan = tmp_path / "plan.parquet"
    hyperplane.plan_shards(tmp_path / "in", 2, plan)
    assert faults_of(hyperplane.plan_shards, tmp_path / "other", 3, plan) == ["n_machines", "urls"]
    assert faults_of(hyperplane.planned_files, plan, 3, 0) == ["n_machines"]
    assert faults_of(hyperplane.planned_files, tmp_path / "none", 3, 0) == ["plan"]
    plan.write_bytes(b"PAR1 of something else")
    assert faults_of(hyperplane.plan_shards, tmp_path / "in", 2, plan) == ["plan"]
    assert faults_of(hyperplane.planned_files, plan, 2, 0) == ["plan"]
    for count in (0, 100_001, True, 2.5, "2"):
        assert faults_of(hyperplane.plan_shards, tmp_path / "in", count, plan) == ["n_machines"]


def test_a_plan_is_that_of_a_folder_and_not_of_its_text(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "in", [5, 4])
    plan = tmp_path / "plan.parquet"
    monkeypatch.chdir(tmp_path / "one")
    planned = hyperplane.plan_shards(["in", "in/*.csv"], 2, plan)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    monkeypatch.chdir(tmp_path)
    same = [tmp_path / "one/in/*.csv", f"file://{tmp_path}/two/../one/in/"]
    assert hyperplane.plan_shards(same, 2, plan) == planned
    assert hyperplane.plan_shards(["./link/in", "link/in/*.csv"], 2, plan) == planned
    monkeypatch.chdir(tmp_path / "two")
    with pytest.raises(RequestError) as refused:
        hyperplane.plan_shards(["in", "in/*.csv"], 2, plan)
    [fault] = refused.value.faults
    assert str(tmp_path / "two/in") in fault.asked
    assert str(tmp_path / "one/in") in fault.allowed
    assert faults_of(hyperplane.plan_shards, 3, 2, plan) == ["urls"]
    assert faults_of(hyperplane.plan_shards, [tmp_path / "one/in"], 2, plan) == ["urls"]


def test_shards_without_files_are_empty(tmp_path):
    write(tmp_path / "in", [5, 4])
    plan = hyperplane.plan_shards(tmp_path / "in", 4, tmp_path / "plan.parquet")
    assert [len(share) for share in shares(plan.url, 4)] == [1, 1, 0, 0]
    assert plan.imbalance == 5 * 4 / 9


def test_a_damaged_plan_returns_no_wrong_files(tmp_path):
    for number in range(200):
        (tmp_path / f"part-{number:05d}.csv").write_text("x" * (number % 7))
    plan = tmp_path / "plan.parquet"
    hyperplane.plan_shards(f"{tmp_path}/*.csv", 2, plan)
    whole = [hyperplane.planned_files(plan, n_machines=2, idx=number) for number in (0, 1)]
    content = plan.read_bytes()
    refused = 0
    for position in range(0, len(content), 7):
        plan.write_bytes(
            content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]
        )
        for number in (0, 1):
            try:
                assert hyperplane.planned_files(plan, n_machines=2, idx=number) == whole[number]
            except RequestError:
                refused += 1
    assert refused > 100


def test_plans_are_written_to_and_read_from_stores(tmp_path):
    write(tmp_path / "in", [5, 4, 3])
    urls = [f"{tmp_path}/in/*.csv", tmp_path / "in"]  # files that both name are listed once
    plan = hyperplane.plan_shards(urls, 2, "memory://plans/run-7.parquet")
    assert plan.files == 3
    assert sorted(map(len, shares("memory://plans/run-7.parquet", 2))) == [1, 2]


def test_the_index_is_that_of_the_task(tmp_path, monkeypatch):
    write(tmp_path / "in", [5, 4, 3])
    plan = hyperplane.plan_shards(tmp_path / "in", 3, tmp_path / "plan.parquet")
    monkeypatch.setenv("AWS_BATCH_JOB_ARRAY_INDEX", "1")
    monkeypatch.setenv("AWS_BATCH_JOB_ARRAY_SIZE", "3")
    assert hyperplane.planned_files(plan.url) == [str(tmp_path / "in/part-1.csv")]


def test_local_folders_are_listed_as_by_find_files(tmp_path):
    root = tmp_path / "in"
    write(root, [1, 2])
    write(root / "deep", [3])
    write(root / "_hidden", [4])
    (root / ".marker").touch()
    write(tmp_path / "linked", [5])
    (root / "link").symlink_to(tmp_path / "linked")
    (root / "circle").symlink_to(root)
    (root / "file").symlink_to(root / "part-1.csv")
    listed = sorted(iterate_file_sizes(root))
    assert listed == sorted((file.address, file.size) for file in find_files(root))
    assert len(listed) == 5
    (root / "dangling").symlink_to(tmp_path / "gone")
    plan = tmp_path / "plan.parquet"
    assert faults_of(hyperplane.plan_shards, root, 2, plan) == ["urls"]
    (tmp_path / "empty").mkdir()
    assert faults_of(hyperplane.plan_shards, tmp_path / "empty", 2, plan) == ["urls"]
    assert faults_of(hyperplane.plan_shards, tmp_path / "none", 2, plan) == ["urls"]
    assert faults_of(hyperplane.plan_shards, "/proc", 2, plan) == ["urls"]
    assert not plan.exists()


@pytest.mark.parametrize(
    "pattern",
    [
        "*", "*.csv", "**", "**/*.csv", "*/*.csv", "deep/*", "d*/part-?.csv", "part-[01].csv", "_*",
        "_hidden/*", "**/deep*", "*/inner/*", "*/*/*", "li*/*", "lin*", "deep/**", "none*",
        "circle/*",
    ],
)  # fmt: skip
def test_local_globs_are_listed_as_by_find_files(tmp_path, pattern):
    root = tmp_path / "in"
    write(root, [1, 2])
    write(root / "deep", [3])
    write(root / "deep/inner", [4, 5])
    write(root / "deep/inner/_tmp", [6])
    write(root / "_hidden", [7])
    write(root / "_hidden/_more", [7])
    (root / ".marker").touch()
    write(tmp_path / "linked", [8])
    write(tmp_path / "linked/below", [9])
    (root / "link").symlink_to(tmp_path / "linked")
    (root / "circle").symlink_to(root)
    url = f"{root}/{pattern}"
    if pattern == "none*":
        assert faults_of(lambda: list(iterate_file_sizes(url))) == faults_of(find_files, url)
        return
    expected = sorted((file.address, file.size) for file in find_files(url))
    assert sorted(iterate_file_sizes(url)) == expected


def test_a_folder_that_cannot_be_read_is_a_fault(tmp_path, monkeypatch):
    write(tmp_path / "in", [1])
    (tmp_path / "in/closed").mkdir()
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    plan = tmp_path / "plan.parquet"
    assert faults_of(hyperplane.plan_shards, tmp_path / "in", 1, plan) == ["urls"]
    assert not plan.exists()


@pytest.mark.parametrize("pattern", ["a**.csv", "**a/*.csv", "[z-a].csv", "x" * 300 + "/*.csv"])
def test_patterns_that_cannot_be_read_are_faults(tmp_path, monkeypatch, pattern):
    write(tmp_path / "in", [1])
    monkeypatch.chdir(tmp_path / "in")
    with pytest.raises(RequestError) as refused:
        hyperplane.plan_shards(pattern, 1, tmp_path / "plan.parquet")
    [fault] = refused.value.faults
    assert fault.where == "urls"
    assert pattern[:20] in fault.asked
    assert fault.advice


def test_links_that_lead_nowhere_are_faults_if_they_are_listed(tmp_path):
    root = tmp_path / "in"
    write(root, [1, 2])
    for name, target in {"circle": "circle", "left": "right", "right": "left"}.items():
        (root / f"{name}.csv").symlink_to(root / f"{target}.csv")
    (root / "below").symlink_to(root / "part-0.csv/none")  # a file, and no folder
    for url in (root, f"{root}/*", f"{root}/**"):
        with pytest.raises(RequestError) as refused:
            list(iterate_file_sizes(url))
        found = {fault.asked: str(fault) for fault in refused.value.faults}
        names = ("circle.csv", "left.csv", "right.csv", "below")
        assert sorted(found) == sorted(str(root / name) for name in names)
        assert "Too many levels of symbolic links" in found[str(root / "circle.csv")]
        assert "fix or remove the link" in found[str(root / "below")]
    assert len(list(iterate_file_sizes(f"{root}/part-*"))) == 2
    (root / "below").unlink()
    assert len(list(iterate_file_sizes(f"{root}/part-*"))) == 2
    for url in (f"{root}/circle.csv", f"{root}/part-0.csv/x", f"{root}/part-0.csv/*.csv"):
        assert faults_of(lambda url=url: list(iterate_file_sizes(url))) == ["urls"]


_WITHOUT_PERMISSION = """
import os, sys
from hyperplane.errors import RequestError
from hyperplane.objectstore.file_sizes import iterate_file_sizes
if os.geteuid() == 0:
    os.setegid(65534), os.seteuid(65534)
for url in sys.argv[1:]:
    try:
        print(url, len(list(iterate_file_sizes(url))))
    except RequestError as error:
        print(url, *(f"{fault.where} {fault.asked}" for fault in error.faults))
"""


@pytest.mark.process
def test_what_the_user_may_not_read_is_a_fault(tmp_path):
    with tempfile.TemporaryDirectory() as name:  # other users cannot enter that of pytest
        root = Path(name)
        root.chmod(0o755)
        write(root / "in", [1, 2])
        write(root / "closed", [3])
        (root / "in/link.csv").symlink_to(root / "closed/part-0.csv")
        (root / "closed").chmod(0)
        urls = [
            f"{root}/{each}" for each in ("in", "in/*", "in/part*", "closed/*.csv", "closed/x/*")
        ]
        command = [sys.executable, "-c", _WITHOUT_PERMISSION, *urls]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        (root / "closed").chmod(0o755)
    assert done.stdout.splitlines() == [
        f"{root}/in urls {root}/in/link.csv",
        f"{root}/in/* urls {root}/in/link.csv",
        f"{root}/in/part* 2",
        f"{root}/closed/*.csv urls {root}/closed/*.csv",
        f"{root}/closed/x/* urls {root}/closed/x/*",
    ]


def test_names_that_are_not_utf8_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "caf\udce9.csv").touch()
    assert faults_of(hyperplane.plan_shards, tmp_path / "in", 1, tmp_path / "p") == ["urls"]
