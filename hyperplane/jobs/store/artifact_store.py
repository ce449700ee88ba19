"""Artifacts in the job store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING

import sqlalchemy as sql

from hyperplane.jobs.store.artifact_records import Artifact, combine_shards
from hyperplane.jobs.store.tables import ARTIFACTS

#: Records that one statement inserts: databases limit the number of values.
_ROWS = 500


class ArtifactStore:
    """Methods of the job store for artifacts."""

    if TYPE_CHECKING:  # a method of the job store

        def _connect(self, *, write: bool = False) -> AbstractContextManager[sql.Connection]: ...

    def save_artifacts(self, artifacts: Sequence[Artifact]) -> None:
        """Insert the artifacts of one attempt; they replace those of the same name or address.

        All have the same job, step and chunk.
        """
        if not artifacts:
            return
        columns, first = ARTIFACTS.c, artifacts[0]
        rows = [asdict(each) for each in {each.name: each for each in artifacts}.values()]
        same_unit = (
            columns.job_id == first.job_id,
            columns.step == first.step,
            columns.chunk == first.chunk,
        )
        parts = [rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]
        with self._connect(write=True) as connection:
            # All before the first is inserted: masked addresses may be equal.
            for part in parts:
                names = columns.name.in_([row["name"] for row in part])
                # An output that is a value has no address.
                urls = columns.url.in_([row["url"] for row in part if row["url"]])
                connection.execute(sql.delete(ARTIFACTS).where(*same_unit, sql.or_(names, urls)))
            for part in parts:
                connection.execute(sql.insert(ARTIFACTS), part)

    def artifacts(self, job_id: str, step: str | None = None) -> list[Artifact]:
        """Return the artifacts of a job in the order in which they were saved.

        Shards of one output are one artifact.
        """
        query = sql.select(ARTIFACTS).where(ARTIFACTS.c.job_id == job_id)
        if step is not None:
            query = query.where(ARTIFACTS.c.step == step)
        with self._connect() as connection:
            records = [Artifact(**row) for row in connection.execute(query).mappings()]
        shards: dict[tuple[str, str], list[Artifact]] = {}
        for each in records:
            if each.shard is not None:
                shards.setdefault((each.step, each.url), []).append(each)
        found = [each for each in records if each.shard is None]
        found += combine_shards(shards)
        return sorted(found, key=lambda each: (each.created, each.step, each.chunk, each.name))
