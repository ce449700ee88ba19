"""Manifests that are damaged, or that a newer version of hyperplane wrote."""

from __future__ import annotations

import fsspec
import pandas as pd
import pytest

import hyperplane
from hyperplane.errors import StorageError


@pytest.mark.parametrize(
    "damage", [lambda text: text.replace('"form": 1', '"form": 2'), lambda text: text[:-9], len]
)
@pytest.mark.parametrize("store", ["local", "memory"])
def test_a_manifest_that_cannot_be_read_is_named(tmp_path, store, damage):
    url = str(tmp_path / "out") if store == "local" else f"memory://{tmp_path.name}/out"
    frame = pd.DataFrame({"n": [1, 2]})
    hyperplane.save(frame, url, shard=(0, 1))
    system, path = fsspec.url_to_fs(url)
    (manifest,) = system.glob(f"{path.rpartition('/')[0]}/.out.hyperplane/*.json")
    system.pipe_file(manifest, str(damage(system.cat_file(manifest).decode())).encode())
    with pytest.raises(StorageError, match="upgrade hyperplane") as caught:
        hyperplane.load(url)
    assert caught.value.url.endswith(manifest)
    with pytest.raises(StorageError, match="upgrade hyperplane"):
        hyperplane.save(frame, url, shard=(0, 1), mode="overwrite", run="b")
