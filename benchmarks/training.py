"""Data-parallel training with PyTorch on 1 and 2 ranks: ``hyperplane.ml.gang`` and ``torchrun``.

Both run ``training_rank.py``, with one thread in each rank. ``steps`` are the seconds of the steps
of training, ``all`` those of the whole call: starting the ranks, importing PyTorch and training.
The cluster of two workers starts before. Each run is a separate process, alternating. The samples
of a rank are the same with 1 and 2 ranks, so that 2 ranks process twice as many.

    python benchmarks/training.py --rounds 5 --steps 300

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
    found = gang(client, train, RANKS, BATCH, STEPS, env={"PYTHONPATH": FOLDER}, logs=False)
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
     FOLDER + "/training_rank.py", "BATCH", "STEPS"],
    capture_output=True, text=True,
)
seconds = time.perf_counter() - began
if done.returncode:
    sys.exit(done.stdout + done.stderr)
print(json.dumps({"all": seconds, **json.loads(done.stdout.splitlines()[-1])}))
"""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=128)
    arguments = parser.parse_args()
    commands = {}
    for ranks in (1, 2):
        for name, text in (("gang", GANG), ("torchrun", TORCHRUN)):
            for word, value in (
                ("FOLDER", repr(str(Path(__file__).resolve().parent))),
                ("RANKS", str(ranks)),
                ("BATCH", str(arguments.batch_size)),
                ("STEPS", str(arguments.steps)),
            ):
                text = text.replace(word, value)
            commands[f"{name}, {ranks} rank{'s' * (ranks > 1)}"] = ["-c", text]
    results = run_alternately(commands, arguments.rounds)
    losses = {name: figures.pop("loss") for name, figures in results.items()}
    for ranks in ("1 rank", "2 ranks"):
        assert losses[f"gang, {ranks}"] == losses[f"torchrun, {ranks}"], losses
        title = f"{ranks}, {arguments.steps} steps of {arguments.batch_size} samples per rank"
        print_report(title, results, f"gang, {ranks}", f"torchrun, {ranks}")
    print(f"\n{'':28}{'ms per step':>14}{'samples/s':>14}{'1 -> 2 ranks':>16}")
    for name, figures in results.items():
        samples = samples_per_second(name, figures, arguments)
        alone = f"{name.partition(',')[0]}, 1 rank"
        ratio = samples / samples_per_second(alone, results[alone], arguments)
        step = 1000 * statistics.median(figures["steps"]) / arguments.steps
        print(f"{name:28}{step:14.1f}{samples:14,.0f}{ratio:16.2f}  loss {losses[name][0]:.4f}")


def samples_per_second(name: str, figures: Figures, arguments: argparse.Namespace) -> float:
    """Return the samples of all ranks in a second, from the median of the rounds."""
    ranks = int(name.split()[1])
    count = ranks * arguments.batch_size * arguments.steps
    return count / statistics.median(figures["steps"])


if __name__ == "__main__":
    main()
