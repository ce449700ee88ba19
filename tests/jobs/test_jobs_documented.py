"""The documented interface: names, texts and statuses as they were published."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time

import pytest
from job_cases import bash, submit_job

from hyperplane import notebook_common as nc
from hyperplane.errors import RequestError

pytestmark = pytest.mark.process

FORM = """#### Jobs summary
0 / 2 in progress

0 / 2 pending

2 / 2 processed

1 done | 0 timed out | 0 cancelled | 1 failed

Progress: 100.0%

#### Dask dashboards
{0} done None
{1} failed None"""


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def pipeline(folder, text):
    (folder / "step.sh").write_text(text)
    (folder / "pipeline.yaml").write_text(
        "pipeline:\n  name: first\n  tasks:\n"
        "  - name: step\n    type: bash script\n    bash_script_path: step.sh\n"
    )
    return str(folder / "pipeline.yaml")


def submit(folder, text, name="a-job", **options):
    options = {
        "jobType": "basic",
        "timeout": 3600,
        "active_timeout": 600,
        "max_retries": 0,
        **options,
    }
    path = pipeline(folder, text)
    return asyncio.run(nc.submit_pipeline_job(jobName=name, pipelineYamlPath=path, **options))


def test_the_summary_is_the_documented_one(tmp_path, capsys):
    ends = tmp_path / "ends"
    step = f"while [ ! -e '{ends}' ]; do sleep 0.1; done; exit $A"
    good, _ = submit(tmp_path, step, parameters={"a": 0})
    bad = submit(tmp_path, step, parameters={"a": 1})

    async def check_until_the_end():
        checked = asyncio.create_task(nc.checkjobs([good, bad.id], loop=True, interval=0.1))
        while "Progress: " not in capsys.readouterr().out:
            assert not checked.done()
            await asyncio.sleep(0.05)
        ends.touch()
        return await checked

    text = asyncio.run(check_until_the_end())
    assert text == FORM.format(good, bad.id)
    assert asyncio.run(nc.checkjobs(ids=[good, bad])) == text


def test_a_cancelled_job_has_the_documented_result_and_summary(tmp_path):
    job_id, _ = submit(tmp_path, "sleep 60")
    assert asyncio.run(nc.cancel_pipeline_job(job_id)) == {"id": job_id, "status": "cancelled"}
    text = asyncio.run(nc.checkjobs([job_id], loop=True, interval=0.1))
    assert "0 done | 0 timed out | 1 cancelled | 0 failed" in text
    assert asyncio.run(nc.cancel_pipeline_jobs(jobID=job_id))["status"] == "cancelled"


def test_ids_that_no_job_has_are_all_named():
    with pytest.raises(RequestError) as caught:
        asyncio.run(nc.checkjobs(["unknown", "nothing"]))
    assert [fault.asked for fault in caught.value.faults] == ["'unknown'", "'nothing'"]


def test_a_step_sets_the_output_and_sees_earlier_runs(tmp_path):
    text = (
        f"{sys.executable} - <<'E'\nimport asyncio, hyperplane.notebook_common as nc\n"
        "async def main():\n"
        "    runs = await nc.get_previous_job_runs()\n"
        "    before = ','.join(run['output'] for run in runs)\n"
        "    await nc.set_current_job_output(f'{len(runs)} before: {before}')\n"
        "    assert (await nc.get_current_job_output()).startswith(str(len(runs)))\n"
        "    assert not nc.is_jhub()\n"
        "asyncio.run(main())\nE\n"
    )
    first = submit(tmp_path, text, name="daily-report-of-this-test")
    asyncio.run(nc.checkjobs([first], loop=True, interval=0.1))
    assert asyncio.run(nc.get_a_job_output(first.id)) == "0 before: "
    second = submit(tmp_path, text, name="daily-report-of-this-test")
    asyncio.run(nc.checkjobs([second], loop=True, interval=0.1))
    assert asyncio.run(nc.get_a_job_output(second.id)) == "1 before: 0 before: "


def test_faults_have_the_names_of_the_documented_arguments():
    with pytest.raises(RequestError) as caught:
        asyncio.run(nc.submit_pipeline_job("a b", "none.yaml", jobType=5, timeout="soon"))
    assert [fault.where for fault in caught.value.faults] == [
        "pipelineYamlPath",
        "timeout",
        "jobName",
        "jobType",
    ]
    with pytest.raises(RequestError) as caught:
        asyncio.run(nc.submit_pipeline_job("a", "none.yaml"))
    assert str(caught.value).splitlines()[1].startswith("  1. pipelineYamlPath = 'none.yaml'")


def test_a_process_that_is_not_a_step_has_no_current_job():
    from hyperplane.errors import JobError

    with pytest.raises(JobError, match="not a step of a job"):
        asyncio.run(nc.get_current_job_output())


@pytest.mark.slow
@pytest.mark.cluster
def test_the_dashboard_of_a_steps_cluster_is_shown_while_it_runs(tmp_path):
    text = (
        f"{sys.executable} - <<'E'\nimport hyperplane, time, pathlib\n"
        "client, cluster = hyperplane.initialize_cluster()\n"
        "print(cluster.workers.__len__(), client.nthreads().values(), flush=True)\n"
        "while not pathlib.Path('stop').exists(): time.sleep(0.05)\nE"
    )
    options = {"num_workers": 1, "nprocs": 1, "nthreads": 2, "ram_gb_per_proc": 0.5}
    # In /tmp, because the path of a socket is limited. The supervisor has another TMPDIR.
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as elsewhere:
        step = bash("dask", text, cluster=options, env={"TMPDIR": elsewhere})
        job = submit_job(step, max_retries=0)
        while not job.job.dashboard and not job.job.processed:
            time.sleep(0.05)
        shown = asyncio.run(nc.checkjobs([job.id]))
        (tmp_path / "stop").touch()
        assert job.wait(150) == "done", job.logs()
    assert re.search(rf"{job.id} in progress http://\S+/status$", shown)
    assert "1 dict_values([2])" in job.logs()
    assert asyncio.run(nc.checkjobs([job.id])).endswith(f"{job.id} done None")
