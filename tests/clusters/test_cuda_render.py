"""The script for several machines: a golden file, and a run with a fake ``dask``.

``HYPERPLANE_WRITE_GOLDEN=1 pytest tests/clusters/test_cuda_render.py`` writes the golden files;
that of dask-cuda's options only if dask-cuda is installed.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import hyperplane
from hyperplane.clusters import registry
from hyperplane.clusters.engine import SupportsRender
from hyperplane.errors import RequestError
from hyperplane.platforms.local import gpus as local_gpus

pytestmark = pytest.mark.process

GOLDEN = Path(__file__).parents[1] / "golden" / "engines"
SCRIPT, INTERFACE = GOLDEN / "cuda.sh", GOLDEN / "cuda_interface.json"
WRITE = bool(os.environ.get("HYPERPLANE_WRITE_GOLDEN"))
EVERYTHING: dict[str, Any] = {
    "rmm_pool_fraction": 0.5,
    "rmm_libraries": ["cupy", "torch"],
    "device_memory_limit": 0.75,
    "enable_cudf_spill": True,
    "local_directory": "/nvme/my scratch; rm -r $HOME",
}


@pytest.fixture(autouse=True)
def no_gpu_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, because a plan cannot ask for more GPUs than the machine has."""
    monkeypatch.setattr(local_gpus, "detect_gpus", lambda: local_gpus.Gpus(0, (), None))


def rendered(**options: Any) -> str:
    plan = hyperplane.plan_cluster(
        engine="cuda",
        name="gpus",
        num_workers=2,
        nprocs=4,
        nthreads=8,
        ram_gb_per_proc=24,
        ngpus=4,
        idle_timeout="30 minutes",
        engine_options=options,
    )
    engine = registry.load("cuda")
    assert isinstance(engine, SupportsRender)
    return engine.render(plan)


def test_the_script_equals_the_golden_file() -> None:
    text = rendered(**EVERYTHING)
    if WRITE:
        SCRIPT.write_text(text, encoding="utf-8")
    assert text == SCRIPT.read_text(encoding="utf-8")


def run(
    text: str, tmp_path: Path, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the script with a fake ``dask`` that prints its arguments."""
    script, stand_in = tmp_path / "gpus.sh", tmp_path / "dask"
    script.write_text(text, encoding="utf-8")
    stand_in.write_text(
        "#!/usr/bin/env python3\nimport json, os, sys\n"
        "print(json.dumps({'words': sys.argv[1:], 'variables': dict(os.environ)}))\n",
        encoding="utf-8",
    )
    stand_in.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}
    return subprocess.run(
        ["bash", str(script), *words], env=environ, capture_output=True, text=True, check=False
    )


KEYS = {"TLS_CA": "/k/ca.pem", "TLS_CERT": "/k/cert.pem", "TLS_KEY": "/k/key.pem"}


def test_a_worker_gets_its_options_and_settings(tmp_path: Path) -> None:
    done = run(rendered(**EVERYTHING), tmp_path, "worker", SCHEDULER="tls://10.0.0.1:8786", **KEYS)
    received = json.loads(done.stdout)
    words, variables = received["words"], received["variables"]
    assert words[:3] == ["cuda", "worker", "tls://10.0.0.1:8786"]
    given = dict(pairwise(words))
    assert given["--memory-limit"] == "24000000000"
    assert given["--rmm-pool-size"] == "0.5"
    assert given["--device-memory-limit"] == "0.75"
    assert given["--local-directory"] == EVERYTHING["local_directory"]
    assert given["--tls-key"] == "/k/key.pem"
    assert variables["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert variables["DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE"] == "0.95"
    assert variables["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "True"
    assert variables["DASK_DATAFRAME__BACKEND"] == "cudf"
    assert variables["CUDF_SPILL"] == "on"


def test_a_users_cuda_visible_devices_have_priority(tmp_path: Path) -> None:
    chosen = {"SCHEDULER": "tls://a:1", "CUDA_VISIBLE_DEVICES": "6,7", **KEYS}
    received = json.loads(run(rendered(), tmp_path, "worker", **chosen).stdout)
    assert received["variables"]["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert "--rmm-pool-size" not in received["words"]


def test_the_scheduler_shows_its_pages_on_loopback_only(tmp_path: Path) -> None:
    words = json.loads(run(rendered(), tmp_path, "scheduler", **KEYS).stdout)["words"]
    assert words[0] == "scheduler"
    given = dict(pairwise(words))
    assert given["--dashboard-address"] == "127.0.0.1:8787"
    assert given["--protocol"] == "tls"
    assert given["--idle-timeout"] == "1800s"


@pytest.mark.parametrize(
    ("words", "variables", "wrong"),
    [
        (("scheduler",), {}, "TLS_CA: file with the certificate of the authority"),
        (("worker",), KEYS, "SCHEDULER: address of the scheduler"),
        ((), KEYS, "usage:"),
    ],
)
def test_says_what_is_missing(
    tmp_path: Path, words: tuple[str, ...], variables: dict[str, str], wrong: str
) -> None:
    done = run(rendered(), tmp_path, *words, **variables)
    assert done.returncode
    assert wrong in done.stderr


def options_of(command: Any) -> dict[str, bool]:
    """Return the options of a click command, and whether each takes a value."""
    return {
        name: not parameter.is_flag
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in [*parameter.opts, *parameter.secondary_opts]
    }


@pytest.mark.parametrize("options", [EVERYTHING, {"rmm_async": True, "rmm_libraries": ["cupy"]}])
def test_every_option_exists_in_the_commands_of_dask_and_dask_cuda(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    from distributed.cli.dask_scheduler import main as scheduler

    known = {
        "scheduler": options_of(scheduler),
        "worker": json.loads(INTERFACE.read_text(encoding="utf-8"))["dask cuda worker"],
    }
    for role, takes_value in known.items():
        done = run(rendered(**options), tmp_path, role, SCHEDULER="tls://a:1", **KEYS)
        words = json.loads(done.stdout)["words"][1 if role == "scheduler" else 3 :]
        while words:
            words = words[2:] if takes_value[words[0]] else words[1:]


def test_a_name_with_a_line_in_it_is_refused() -> None:
    with pytest.raises(RequestError, match="name"):
        hyperplane.plan_cluster(engine="cuda", ngpus=1, name="gpus\nrm -r /")


def test_the_recorded_interface_equals_the_installed_dask_cuda() -> None:
    reason = "dask-cuda is not installed: its options are those of the file"
    dask_cuda = pytest.importorskip("dask_cuda", reason=reason)
    from dask_cuda.cli import worker  # type: ignore[import-not-found,unused-ignore]

    found = {
        "dask-cuda": version("dask-cuda"),
        "LocalCUDACluster": list(inspect.signature(dask_cuda.LocalCUDACluster.__init__).parameters)[
            1:
        ],
        "dask cuda worker": options_of(worker),
    }
    if WRITE:
        INTERFACE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert found == json.loads(INTERFACE.read_text(encoding="utf-8"))
