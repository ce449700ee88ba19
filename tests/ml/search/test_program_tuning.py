import json
import os
import threading
import time

import psutil
import pytest
from scale import FULL
from services import until

import hyperplane
from hyperplane.errors import EngineError, RequestError, SearchFailed
from hyperplane.ml import tune_program
from hyperplane.ml.search import search_storage
from hyperplane.ml.search.training_program import read_metrics

PROGRAM = """
import argparse, json, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--units", type=int)
parser.add_argument("--kind")
parser.add_argument("--job-dir")
parser.add_argument("--endless-from", type=int, default=1000)
arguments = parser.parse_args()
print(json.dumps({**vars(arguments), "trial": os.environ["CLOUD_ML_TRIAL_ID"],
                  "config": json.loads(os.environ["TF_CONFIG"])}))
if arguments.kind == "bad":
    sys.exit("no such kind")
lines = []
for step in range(1, 6):
    lines.append({"trial": "1", "acc": str(arguments.units * step), "global_step": str(step)})
    with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
        file.writelines(json.dumps(line) + "\\n" for line in lines)
    if arguments.units >= arguments.endless_from:
        time.sleep(600)
"""


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "task.py"
    file.write_text(PROGRAM)
    return file


def _spec(**options):
    units = {"parameterName": "units", "type": "DISCRETE", "discreteValues": [2, 4, 8]}
    spec = {"hyperparameterMetricTag": "acc", "algorithm": "GRID_SEARCH", "maxTrials": 3,
            "maxParallelTrials": 2, "params": [units]}  # fmt: skip
    return {"trainingInput": {"hyperparameters": {**spec, **options}}}


@pytest.mark.slow
@pytest.mark.cluster
def test_each_trial_runs_the_program_with_its_values(client, program):
    result = tune_program(["python", str(program)], _spec(), name="program-1", job_dir="gs://b/m/")
    assert (result.best_params, result.best_value) == ({"units": 8}, 40.0)
    for number in (1, 2, 3):
        log = search_storage.search_folder("program-1") / f"trial-{number}.log"
        printed = json.loads(log.read_text())
        assert printed["trial"] == str(number)
        assert printed["job_dir"] == f"gs://b/m/{number}"
        assert printed["config"]["task"] == {"trial": str(number)}
        assert printed["config"]["environment"] == "cloud"


@pytest.mark.slow
@pytest.mark.cluster
def test_the_output_of_a_failed_program_is_in_the_history(client, program):
    kind = {"parameterName": "kind", "type": "CATEGORICAL", "categoricalValues": ["good", "bad"]}
    units = {"parameterName": "units", "type": "DISCRETE", "discreteValues": [2, 4]}
    spec = _spec(params=[units, kind], maxTrials=4)
    result = tune_program(f"python {program}", spec)
    failed = result.history[result.history["state"] == "failed"]
    assert set(failed["params.kind"]) == {"bad"}
    assert failed["error"].str.contains("exit code 1").all()
    assert failed["error"].str.contains("no such kind").all()
    with pytest.raises(SearchFailed):
        tune_program(f"python {program}", {**spec["trainingInput"]["hyperparameters"],
                                           "maxFailedTrials": 1})  # fmt: skip


@pytest.mark.slow
@pytest.mark.cluster
def test_early_stopping_ends_the_program(client, program):
    """The programs of the trials from the 7th on are worse than all before, and do not end."""
    units = {"parameterName": "units", "type": "INTEGER", "minValue": 1, "maxValue": 9}
    spec = _spec(maxTrials=9, enableTrialEarlyStopping=True, goal="MINIMIZE", params=[units])
    history = tune_program(f"python {program} --endless-from 7", spec).history
    assert history["params.units"].to_list() == list(range(1, 10))
    assert history["state"].iloc[6:].to_list() == ["pruned"] * 3
    assert history["value"].iloc[6:].to_list() == [7.0, 8.0, 9.0]


@pytest.mark.skipif(not FULL, reason="takes ten seconds: at full scale")
@pytest.mark.cluster
def test_programs_end_with_the_cluster(tmp_path):
    pids = tmp_path / "pids"
    script = tmp_path / "sleep.py"
    script.write_text(
        f"import os, time\nopen({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\ntime.sleep(600)\n"
    )
    client, cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=1, num_workers=1, ram_gb_per_proc=0.5
    )

    def close():
        while not pids.exists():
            time.sleep(0.05)
        for worker in client.run(os.getpid).values():
            psutil.Process(worker).kill()
        time.sleep(0.5)
        cluster.close()
        client.close()

    closing = threading.Thread(target=close)
    closing.start()
    with pytest.raises(EngineError, match="the cluster closed"):
        tune_program(["python", str(script)], _spec(maxParallelTrials=1), client=client)
    closing.join()
    started = [int(pid) for pid in pids.read_text().split()]
    until(lambda: not any(psutil.pid_exists(pid) for pid in started))


@pytest.mark.parametrize("command", ["", [], ["python", 3], "python 'a", None])
def test_invalid_commands_are_faults(command):
    with pytest.raises(RequestError) as caught:
        tune_program(command, _spec(), client="no client")
    assert [fault.where for fault in caught.value.faults] == ["command", "client"]


def test_a_search_does_not_begin_with_its_own_trials():
    with pytest.raises(RequestError) as caught:
        tune_program("a.py", _spec(resumePreviousJobId="same"), name="same", client="no client")
    assert [fault.where for fault in caught.value.faults] == ["client", "resumePreviousJobId"]


def test_metrics_skip_lines_of_others(tmp_path):
    file = tmp_path / "output.metrics"
    file.write_text('{"acc": "0.5", "global_step": "3"}\n{"loss": 1}\n[1]\n{"acc": 0.7}\n{"ac')
    assert read_metrics(file, "acc") == [(3, 0.5), (1, 0.7)]
    assert read_metrics(tmp_path / "missing", "acc") == []
