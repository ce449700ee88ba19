"""Tables of the job store."""

from __future__ import annotations

import sqlalchemy as sql

from hyperplane.jobs.store.artifact_records import LONGEST_NAME

TABLES = sql.MetaData()
JOBS = sql.Table(
    "hyperplane_jobs",
    TABLES,
    sql.Column("id", sql.String(64), primary_key=True),
    sql.Column("run_id", sql.String(64), nullable=False),
    sql.Column("name", sql.String(256), nullable=False, index=True),
    sql.Column("job_type", sql.String(64), nullable=False),
    sql.Column("status", sql.String(16), nullable=False, index=True),
    sql.Column("reason", sql.Text, nullable=False),
    *(sql.Column(name, sql.Double, nullable=False) for name in ("submitted", "started", "ended")),
    *(sql.Column(name, sql.Double, nullable=False) for name in ("timeout", "active_timeout")),
    *(sql.Column(name, sql.Integer, nullable=False) for name in ("max_retries", "tries")),
    sql.Column("definition", sql.Text, nullable=False),
    sql.Column("parameters", sql.Text, nullable=False),
    sql.Column("machine", sql.String(256), nullable=False, index=True),
    sql.Column("python", sql.Text, nullable=False),
    sql.Column("runner", sql.String(64), nullable=False),
    sql.Column("folder", sql.Text, nullable=False),
    sql.Column("dashboard", sql.Text, nullable=False),
    sql.Column("output", sql.Text),
    sql.Column("schedule", sql.String(256), nullable=False),
    sql.Column("cancelled", sql.Boolean, nullable=False),
)
ATTEMPTS = sql.Table(
    "hyperplane_attempts",
    TABLES,
    sql.Column("job_id", sql.ForeignKey("hyperplane_jobs.id"), primary_key=True),
    sql.Column("step", sql.String(256), primary_key=True),
    sql.Column("chunk", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("status", sql.String(16), nullable=False),
    *(sql.Column(name, sql.Double, nullable=False) for name in ("started", "ended")),
    sql.Column("exit_code", sql.Integer),
    sql.Column("reason", sql.Text, nullable=False),
    sql.Column("fault", sql.String(16), nullable=False),
    sql.Column("log", sql.Text, nullable=False),
)
#: Kinds of records: of runs of steps, and of the clusters that they start.
STEPS, CLUSTERS = "steps", "clusters"
#: A table for each kind: a step may start many clusters, whose records must not replace its own.
RUNS = {
    kind: sql.Table(
        name,
        TABLES,
        sql.Column("job_id", sql.String(64), primary_key=True),
        sql.Column("name", sql.String(256), primary_key=True),
        sql.Column("machine", sql.String(256), nullable=False, index=True),
        sql.Column("pipeline", sql.String(256), nullable=False, index=True),
        sql.Column("step", sql.String(256), nullable=False),
        sql.Column("started", sql.Double, nullable=False),
        sql.Column("document", sql.Text, nullable=False),
    )
    for kind, name in ((STEPS, "hyperplane_runs"), (CLUSTERS, "hyperplane_cluster_runs"))
}
#: Run numbers of jobs. A separate table, so that stores of earlier versions, whose jobs have no
#: number, need no conversion, and earlier versions can use the same store.
NUMBERS = sql.Table(
    "hyperplane_job_numbers",
    TABLES,
    sql.Column("job_id", sql.String(64), primary_key=True),
    sql.Column("pipeline", sql.String(256), nullable=False),
    sql.Column("number", sql.Integer, nullable=False),
    sql.Index("hyperplane_job_numbers_unique", "pipeline", "number", unique=True),
)
#: When jobs that were resumed were first submitted: ``submitted`` of these is the time of the last
#: resume, from which earlier versions count their limits, too.
RESUMED = sql.Table(
    "hyperplane_resumed_jobs",
    TABLES,
    sql.Column("job_id", sql.String(64), primary_key=True),
    sql.Column("first_submitted", sql.Double, nullable=False),
)
#: How long the runs of jobs before their last resume took: ``started`` and ``ended`` are those of
#: the last run, also for earlier versions.
EARLIER_RUNS = sql.Table(
    "hyperplane_earlier_runs",
    TABLES,
    sql.Column("job_id", sql.String(64), primary_key=True),
    sql.Column("seconds", sql.Double, nullable=False),
)
#: Last number of each pipeline: numbers of removed jobs are not used again.
COUNTERS = sql.Table(
    "hyperplane_pipeline_counters",
    TABLES,
    sql.Column("pipeline", sql.String(256), primary_key=True),
    sql.Column("last", sql.Integer, nullable=False),
)
#: What the attempts of jobs have saved. A name belongs to the last attempt that has saved it.
ARTIFACTS = sql.Table(
    "hyperplane_artifacts",
    TABLES,
    # No foreign key: a job that is removed meanwhile is no error of an attempt that ends.
    sql.Column("job_id", sql.String(64), primary_key=True),
    sql.Column("step", sql.String(256), primary_key=True),
    sql.Column("chunk", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("name", sql.String(LONGEST_NAME), primary_key=True),
    sql.Column("attempt", sql.Integer, nullable=False),
    *(sql.Column(name, sql.String(32), nullable=False) for name in ("kind", "format")),
    sql.Column("url", sql.Text, nullable=False),
    *(sql.Column(name, sql.BigInteger) for name in ("size", "rows", "files")),
    sql.Column("created", sql.Double, nullable=False),
    sql.Column("is_folder", sql.Boolean, nullable=False),
    sql.Column("shard", sql.Integer),
    sql.Column("identity", sql.Text, nullable=False),
)
