"""Jobs on JSON lines: plain Dask bags, hyperplane.bag, Polars and DuckDB.

Generates a log of events and runs each job with each engine, every run a separate process,
alternating. CPU seconds are those of the whole process tree, with the start of Python and imports;
``job`` excludes these. The peak is that of the main process. Dask uses threads; the rows marked
"processes" use processes, Dask's default for bags.

    python benchmarks/records.py --rows 1000000 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from pathlib import Path

from abab import Figures, run_alternately

HEAD = """
import json, os, resource, sys, time
def cpu():
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)
def main():
    URL = {url!r}
    {setup}
    before, began = cpu(), time.perf_counter()
    answer = {job}
    figures = dict(cpu=cpu(), job=cpu() - before, wall=time.perf_counter() - began)
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    figures["check"] = {check}
    print(json.dumps(figures))
if __name__ == "__main__":
    main()
"""
USUAL = """import dask, dask.bag as db
    dask.config.set(scheduler={scheduler!r})
    bag = db.read_text(URL, blocksize="64MB").map(json.loads)"""
OURS = """import dask
    from hyperplane.bag import count_by, read_records, select, take, to_dataframe
    dask.config.set(scheduler="threads")
    bag = read_records(URL)"""
POLARS = """import polars as pl
    log = pl.scan_ndjson(URL)"""
DUCKDB = """import duckdb
    duckdb.sql("set threads=%d" % os.cpu_count())
    log = f"read_ndjson('{URL}')" """

# For each job: the expression for one number of the answer, and the code of each engine.
JOBS: dict[str, dict[str, str]] = {
    "count by type": {
        "check": "max(count for _, count in answer)",
        "usual": "bag.pluck('type').frequencies().compute()",
        "ours": "count_by(bag, 'type').compute()",
        "polars": "log.group_by('type').len().collect().rows()",
        "duckdb": "duckdb.sql(f'select type, count(*) from {log} group by all').fetchall()",
    },
    "filter, count by path": {
        "check": "sum(count for _, count in answer)",
        "usual": "bag.filter(lambda r: r['type'] == 'buy').pluck('path').frequencies().compute()",
        "ours": "count_by(select(bag, {'type': 'buy'}, ['path']), 'path').compute()",
        "polars": "log.filter(pl.col('type') == 'buy').group_by('path').len().collect().rows()",
        "duckdb": "duckdb.sql(f\"select path, count(*) from {log} where type = 'buy' "
        'group by all").fetchall()',
    },
    "filter, records": {
        "check": "len(answer)",
        "usual": "bag.filter(lambda r: r['type'] == 'buy').compute()",
        "ours": "select(bag, {'type': 'buy'}).compute()",
        "polars": "log.filter(pl.col('type') == 'buy').collect().to_dicts()",
    },
    "count by nested field": {
        "check": "len(answer)",
        "usual": "bag.map(lambda r: r['user']['id']).frequencies().compute()",
        "ours": "count_by(bag, 'user.id').compute()",
        "polars": "log.group_by(pl.col('user').struct.field('id')).len().collect().rows()",
        "duckdb": "duckdb.sql(f'select user.id, count(*) from {log} group by all').fetchall()",
    },
    "any function, count": {
        "check": "answer",
        "usual": "bag.filter(lambda r: r['ms'] > 500 and 'a' in r['tags']).count().compute()",
        "ours": "select(bag, lambda r: r['ms'] > 500 and 'a' in r['tags']).count().compute()",
    },
    "mean by type, dataframe": {
        "check": "len(answer)",
        "usual": "bag.map(lambda r: {k: r[k] for k in ('type', 'ms', 'time')})"
        ".to_dataframe().groupby('type').ms.mean().compute()",
        "ours": "to_dataframe(bag).groupby('type').ms.mean().compute()",
        "polars": "log.group_by('type').agg(pl.col('ms').mean()).collect()",
        "duckdb": "duckdb.sql(f'select type, avg(ms) from {log} group by all').fetchall()",
    },
}


def generate(file: Path, rows: int) -> None:
    """Write a log of about 170 bytes per line: users by a power law, six types of events."""
    draw = random.Random(1)
    users = [f"u{int(draw.paretovariate(0.7)) % 50_000}" for _ in range(10_000)]
    kinds = ["view", "click", "buy", "scroll", "login", "logout"]
    with file.open("w") as opened:
        for n in range(rows):
            day, second = divmod(n * 86_400 * 28 // rows, 86_400)
            clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
            record = {
                "time": f"2024-05-{day + 1:02}T{clock}Z",
                "user": {"id": draw.choice(users), "plan": draw.choice(["free", "pro"])},
                "type": draw.choices(kinds, [50, 25, 3, 15, 4, 3])[0],
                "status": draw.choice([200, 200, 200, 404, 500]),
                "ms": round(draw.expovariate(0.01), 2),
                "path": f"/item/{draw.randrange(5000)}",
                "tags": draw.sample(["a", "b", "c", "d"], 2),
                "ok": draw.random() < 0.9,
            }
            opened.write(json.dumps(record) + "\n")


def programs(job: dict[str, str], url: str, processes: bool) -> dict[str, list[str]]:
    """Return, for each engine, the arguments of Python that run one job."""
    usual = USUAL.format(scheduler="threads")
    setups = {"usual": usual, "ours": OURS, "polars": POLARS, "duckdb": DUCKDB}
    jobs = {name: (setups[name], text) for name, text in job.items() if name != "check"}
    if processes:
        jobs["usual, processes"] = (USUAL.format(scheduler="processes"), job["usual"])
    return {
        name: ["-c", HEAD.format(url=url, setup=setup, job=text, check=job["check"])]
        for name, (setup, text) in jobs.items()
    }


def show(title: str, results: dict[str, Figures]) -> None:
    """Print the medians of each engine, and its CPU seconds relative to hyperplane."""
    answers = {name: set(figures["check"]) for name, figures in results.items()}
    same = len(set.union(*answers.values())) == 1
    print(f"\n{title}: answers {'equal' if same else f'DIFFER: {answers}'}")
    print(f"{'':20}{'CPU s':>9}{'of the job':>12}{'wall s':>9}{'peak MB':>9}{'job / ours':>12}")
    ours = statistics.median(results["ours"]["job"])
    for name, figures in results.items():
        cpu, job, wall, peak = (
            statistics.median(figures[key]) for key in ("cpu", "job", "wall", "peak_mb")
        )
        print(f"{name:20}{cpu:9.2f}{job:12.2f}{wall:9.2f}{peak:9.0f}{job / ours:12.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", action="store_true", help="Dask's default for bags too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.jsonl"
        generate(file, arguments.rows)
        print(f"{arguments.rows} records, {file.stat().st_size / 1e6:.0f} MB")
        for title, job in JOBS.items():
            commands = programs(job, str(file), arguments.processes)
            show(title, run_alternately(commands, arguments.rounds))


if __name__ == "__main__":
    main()
