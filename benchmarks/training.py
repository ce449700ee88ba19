"""Data-parallel training with PyTorch on 1 and 2 ranks: ``hyperplane.ml.gang`` and ``torchrun``.

Both run ``training_rank.py``, with one thread in each rank. ``steps`` are the seconds of the steps
of training, ``all`` those of the whole call: starting the ranks, importing PyTorch and training.
The cluster of two workers starts before. Each run is a separate process, alternating. The samples
of a rank are the same with 1 and 2 ranks, so that 2 ranks process twice as many. Two ranks without
averages compute at the same time and do not communicate: what the machine itself can reach.

    python benchmarks/training.py --rounds 5 --steps 300
    python benchmarks/training.py --rounds 5 --steps 100 --layers 4

It needs the extra ``torch`` (``make networks`` installs it in ``.venv-networks``).
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from abab import Figures, print_report, run_alternately

GANG = """
import json, sys, time
import hyperplane
from hyperplane.ml import gang
sys.path.insert(0, FOLDER)
from training_rank import train

if __name__ == "__main__":
    plan = hyperplane.plan_cluster(1, nprocs=2, nthreads=1, ram_gb_per_proc=2)
    client, cluster = hyperplane.start(plan)
    began = time.perf_counter()
    settings = {"env": {"PYTHONPATH": FOLDER}, "logs": False}
    found = gang(client, train, RANKS, BATCH, STEPS, AVERAGED, LAYERS, **settings)
    figures = {"all": time.perf_counter() - began, **found[0]}
    client.close()
    cluster.close()
    print(json.dumps(figures))
"""

TORCHRUN = """
import json, subprocess, sys, time

began = time.perf_counter()
done = subprocess.run(
    [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=RANKS",
     FOLDER + "/training_rank.py", "BATCH", "STEPS", "AVERAGED", "LAYERS"],
    capture_output=True, text=True,
)
seconds = time.perf_counter() - began
if done.returncode:
    sys.exit(done.stdout + done.stderr)
print(json.dumps({"all": seconds, **json.loads(done.stdout.splitlines()[-1])}))
"""

#: Text of the program, number of ranks, and whether they average their gradients.
VARIANTS = {
    "gang, 1 rank": (GANG, 1, True),
    "torchrun, 1 rank": (TORCHRUN, 1, True),
    "gang, 2 ranks": (GANG, 2, True),
    "torchrun, 2 ranks": (TORCHRUN, 2, True),
    "gang, 2 ranks, no averages": (GANG, 2, False),
    "torchrun, 2 ranks, no averages": (TORCHRUN, 2, False),
}
CPU, OTHER_CPU = "CPU of the ranks in the steps", "CPU of other processes in the steps"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=0, help="more convolutions")
    arguments = parser.parse_args()
    commands = {
        name: make_command(text, ranks, is_averaged, arguments)
        for name, (text, ranks, is_averaged) in VARIANTS.items()
    }
    results = run_alternately(commands, arguments.rounds)
    losses = {name: figures.pop("loss") for name, figures in results.items()}
    for ranks in ("1 rank", "2 ranks"):
        assert losses[f"gang, {ranks}"] == losses[f"torchrun, {ranks}"], losses
        title = f"{ranks}, {arguments.steps} steps of {arguments.batch_size} samples per rank"
        print_report(title, results, f"gang, {ranks}", f"torchrun, {ranks}")
    heads = ("ms per step", "samples/s", "1 -> 2 ranks", "(min-max)", "CPU ms", "other CPU ms")
    print(f"\n{'':28}" + "".join(f"{head:>14}" for head in heads))
    for name, figures in results.items():
        samples = list_samples_per_second(name, figures, arguments)
        alone = f"{name.partition(',')[0]}, 1 rank"
        ratios = [
            two / one
            for two, one in zip(
                samples, list_samples_per_second(alone, results[alone], arguments), strict=True
            )
        ]
        step, own, other = (
            1000 * statistics.median(values) / arguments.steps if values else float("nan")
            for values in (figures["steps"], figures[CPU], figures.get(OTHER_CPU))
        )
        span = f"{min(ratios):.2f}-{max(ratios):.2f}"
        print(
            f"{name:28}{step:14.1f}{statistics.median(samples):14,.0f}"
            f"{statistics.median(ratios):14.2f}{span:>14}{own:14.1f}{other:14.2f}"
            f"  loss {losses[name][0]:.4f}"
        )


def make_command(
    text: str, ranks: int, is_averaged: bool, arguments: argparse.Namespace
) -> list[str]:
    """Return the arguments of Python for a run."""
    for word, value in (
        ("FOLDER", repr(str(Path(__file__).resolve().parent))),
        ("RANKS", str(ranks)),
        ("BATCH", str(arguments.batch_size)),
        ("STEPS", str(arguments.steps)),
        ("AVERAGED", str(is_averaged)),
        ("LAYERS", str(arguments.layers)),
    ):
        text = text.replace(word, value)
    return ["-c", text]


def list_samples_per_second(
    name: str, figures: Figures, arguments: argparse.Namespace
) -> list[float]:
    """Return the samples of all ranks in a second, of each round."""
    ranks = int(name.split()[1])
    count = ranks * arguments.batch_size * arguments.steps
    return [count / seconds for seconds in figures["steps"]]


if __name__ == "__main__":
    main()
