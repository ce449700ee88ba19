"""Variables, directories, output and exit codes of training programs."""

import json
import signal
import socket
import subprocess

import pytest
from training_programs import (
    DESCRIBE,
    SOCKETS,
    find_free_ports,
    run_command,
    start_command,
    write_program,
)

from hyperplane.clusters.program_environment import RankAddresses, make_rank_environment
from hyperplane.errors import RequestError
from hyperplane.ml import train_program
from hyperplane.ml.training import run_plan

pytestmark = pytest.mark.process


@pytest.mark.slow
def test_one_process_has_an_empty_task_and_cluster(tmp_path):
    package = write_program(tmp_path, DESCRIBE)
    result = run_command(package, "--job-dir", "out", arguments=["3", "--rate", "0.1"])
    found = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (3, "")
    assert found["argv"] == ["3", "--rate", "0.1", "--job-dir", "out"]
    assert found["cwd"] == str(tmp_path)
    job = {"job_name": "trainer.task", "args": found["argv"]}
    assert found["config"] == {"job": job, "task": {}, "cluster": {}, "environment": "cloud"}
    assert (found["ranks"]["RANK"], found["ranks"]["WORLD_SIZE"]) == ("0", "1")


@pytest.mark.slow
def test_a_run_has_contiguous_ports_and_prefixed_output(tmp_path):
    package = write_program(tmp_path, DESCRIBE)
    port = find_free_ports(4)
    options = ["--worker-count", "2", "--parameter-server-count", "1", "--evaluator-count", "1"]
    result = run_command(
        package, "--distributed", *options, "--start-port", str(port), arguments=["0", "--hold"]
    )
    assert result.returncode == 0, result.stderr
    chief = json.loads(result.stdout)  # nothing else is on standard output
    cluster = {
        "chief": [f"localhost:{port}"],
        "ps": [f"localhost:{port + 1}"],
        "worker": [f"localhost:{port + 2}", f"localhost:{port + 3}"],
    }
    found = {"chief-0": chief}
    for line in result.stderr.splitlines():
        name, separator, text = line.partition(" | ")
        if separator:
            found[name] = json.loads(text)
    assert sorted(found) == ["chief-0", "evaluator-0", "ps-0", "worker-0", "worker-1"]
    for name, each in found.items():
        role, index = name.split("-")
        assert each["config"]["cluster"] == cluster
        assert each["config"]["task"] == {"type": role, "index": int(index)}
    ranks = {name: each["ranks"]["RANK"] for name, each in found.items()}
    assert ranks == {
        "chief-0": "0", "worker-0": "1", "worker-1": "2", "ps-0": None, "evaluator-0": None,
    }  # fmt: skip
    assert chief["ranks"]["MASTER_PORT"] == str(port)


def test_ps_and_workers_and_the_chief_train_over_sockets(tmp_path):
    port = find_free_ports(5)
    result = run_command(
        write_program(tmp_path, SOCKETS), "--distributed", "--start-port", str(port)
    )
    assert (result.returncode, json.loads(result.stdout)) == (0, [3.0, -2.0]), result.stderr
    names = ["ps-0", "ps-1", "worker-0", "worker-1"]
    assert sorted(result.stderr.splitlines()) == [f"{name} | serving" for name in names]


def test_standard_input_and_error_of_the_primary_are_unchanged(tmp_path):
    package = write_program(
        tmp_path,
        "import sys; sys.stdout.write(sys.stdin.read()[::-1]); print('e', file=sys.stderr)",
    )
    with start_command(
        package, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.communicate("abc", timeout=60) == ("cba", "e\n")


@pytest.mark.slow
def test_the_exit_code_after_a_signal_is_that_of_a_shell(tmp_path):
    package = write_program(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert run_command(package).returncode == 128 + signal.SIGKILL
    assert train_program("trainer.task", package_path=package) == -signal.SIGKILL


def test_a_used_port_is_named_before_anything_starts(tmp_path):
    package = write_program(tmp_path, "open('started', 'w')")
    port = find_free_ports(5)
    with socket.create_server(("localhost", port + 2)):
        result = run_command(package, "--distributed", "--start-port", str(port))
    assert result.returncode == 2
    assert f"{port + 2} is in use" in result.stderr
    assert not (tmp_path / "started").exists()


def test_all_faults_are_listed(tmp_path):
    with pytest.raises(RequestError, match="no process was started") as caught:
        train_program(
            "trainer.absent", [object()], package_path=write_program(tmp_path, ""), job_dir=3,
            distributed=True, worker_count=-1, parameter_server_count=1.5, evaluator_count=True,
            start_port=0, fail_fast="no",
        )  # fmt: skip
    assert {fault.where for fault in caught.value.faults} == {
        "module_name", "arguments", "job_dir", "worker_count", "parameter_server_count",
        "evaluator_count", "start_port", "fail_fast",
    }  # fmt: skip
    for module in ("", "../x", "a.b c", 3, "trainer"):
        with pytest.raises(RequestError, match="module_name"):
            train_program(module, package_path=tmp_path / "trainer")
    with pytest.raises(RequestError, match="package_path"):
        train_program("trainer.task", package_path=tmp_path / "absent")


def test_ignored_options_are_reported(tmp_path):
    package = write_program(tmp_path, "")
    with pytest.warns(UserWarning, match="worker_count, start_port: ignored") as caught:
        assert (
            train_program("trainer.task", package_path=package, worker_count=2, start_port=5) == 0
        )
    assert caught[0].filename == __file__
    result = run_command(package, "--worker-count", "2")
    assert result.stderr == "note: --worker-count: ignored without --distributed\n"


def test_a_package_with_a_main_module_and_an_installed_module_run(tmp_path):
    package = write_program(tmp_path, "")
    (package / "__main__.py").write_text("raise SystemExit(4)")
    assert train_program("trainer", package_path=package) == 4
    assert train_program("platform", package_path=package) == 0


@pytest.mark.parametrize(
    ("installed", "role"),
    [
        ({"tensorflow": "1.15.5"}, "master"),
        ({"tensorflow-cpu": "2.21.0"}, "chief"),
        ({}, "chief"),
    ],
)
def test_the_primary_is_the_master_with_tensorflow_1(monkeypatch, installed, role):
    def version(name):
        if name in installed:
            return installed[name]
        raise run_plan.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(run_plan.importlib.metadata, "version", version)
    assert run_plan.find_primary_role() == role


def test_local_ranks_count_processes_of_the_same_host():
    addresses = RankAddresses(
        {"master": ["a:1"], "worker": ["b:1", "a:2", "b:2"]}, master="a:29500"
    )
    made = [make_rank_environment("master", 0, addresses)]
    made += [make_rank_environment("worker", index, addresses) for index in range(3)]
    assert [each["LOCAL_RANK"] for each in made] == ["0", "0", "1", "1"]
    assert {each["LOCAL_WORLD_SIZE"] for each in made} == {"2"}
    assert {(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in made} == {("a", "29500")}
    assert json.loads(made[0]["TF_CONFIG"])["cluster"]["master"] == ["a:1"]
