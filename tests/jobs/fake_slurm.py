"""Fake Slurm: submissions are stored in a folder, and ``run`` runs them as processes.

It reads scripts as sbatch does and refuses unknown options. Jobs get the variables that
``--export`` names, those of a login on the node, and Slurm's own.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

LOGIN = {"HOME": "/nonexistent", "USER": "other", "PATH": "/usr/bin:/bin"}
OPTIONS = {
    "array", "cpus-per-task", "dependency", "export", "gres", "job-name", "kill-on-invalid-dep",
    "mem", "no-requeue", "output", "parsable", "signal", "time",
}  # fmt: skip
#: Variables with which a user overrides the options in a script.
OVERRULING = {"SBATCH_ARRAY_INX": "array", "SBATCH_EXPORT": "export", "SBATCH_TIMELIMIT": "time"}


def _option(word):
    name, _, value = word.removeprefix("--").partition("=")
    if not word.startswith("--") or name not in OPTIONS:
        sys.exit(f"sbatch: unrecognized option '{word}'")
    return name, value


def _lines(text):
    """Yield the options in a script, up to the first line that is not a comment."""
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            words = line.split()[1:]
            if len(words) != 1 or set("\"'\\") & set(line):
                sys.exit(f"sbatch: one plain word is expected: {line}")
            yield _option(words[0])
        elif line and not line.startswith("#"):
            return


def sbatch(arguments, folder):
    """Store a job and print its id."""
    if (folder / "refuse").exists() and (folder / "refuse").read_text() in arguments[-1]:
        sys.exit("sbatch: error: Batch job submission failed: Invalid partition")
    *words, name = arguments
    text = Path(name).read_bytes()
    if b"\r\n" in text or not text.startswith(b"#!") or b"\0" in text:
        sys.exit("sbatch: error: Batch script contains DOS line breaks")
    options = dict(_lines(text.decode()))
    options |= {
        key: os.environ[variable] for variable, key in OVERRULING.items() if variable in os.environ
    }
    options |= dict(_option(word) for word in words)
    exported = options["export"].split(",")
    variables = os.environ if exported == ["ALL"] else {
        name: os.environ[name] for name in exported if name in os.environ
    }  # fmt: skip
    number = 100 + len(list(folder.glob("*.job")))
    stored = {
        "number": number,
        "script": text.decode(),
        "options": options,
        "environment": {**LOGIN, **variables},
        "folder": os.getcwd(),  # noqa: PTH109
        "arguments": arguments,
    }
    (folder / f"{number}.job").write_text(json.dumps(stored))
    assert "parsable" in options
    sys.stdout.write(f"{number};cluster\n")


def scancel(arguments, folder):
    """Cancel stored jobs."""
    for number in arguments:
        (folder / f"{number}.job").rename(folder / f"{number}.cancelled")


def jobs(folder):
    """Return the stored jobs in the order of submission."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.job"))]


def run(folder):
    """Run all jobs in order; return exit codes and the most concurrent tasks of each."""
    waiting, codes, most = jobs(folder), {}, {}
    while ready := [job for job in waiting if _ready(job, codes)]:
        for job in ready:
            waiting.remove(job)
            most[job["number"]] = _tasks(job, codes.setdefault(job["number"], []))
    return codes, most


def _ready(job, codes):
    kind, _, numbers = job["options"].get("dependency", "").partition(":")
    assert kind in ("", "afterok")
    return all(
        int(number) in codes and not any(codes[int(number)])
        for number in numbers.split(":")
        if number
    )


def _tasks(job, codes):
    array = job["options"].get("array")
    if array is None:
        codes.append(_start(job, {"%j": job["number"]}, {}).wait())
        return 1
    first, last, limit = re.fullmatch(r"(\d+)-(\d+)(?:%(\d+))?", array).groups()
    numbers, running, most = list(range(int(first), int(last) + 1)), [], 0
    while numbers or running:
        while numbers and len(running) < int(limit or 1000):
            task = numbers.pop(0)
            named = {"ID": task, "MIN": first, "MAX": last, "COUNT": int(last) + 1, "STEP": 1}
            variables = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in named.items()}
            running.append(_start(job, {"%A": job["number"], "%a": task}, variables))
        most = max(most, len(running))
        codes.append(running.pop(0).wait())
    return most


def _start(job, marks, variables):
    log = job["options"]["output"]
    for mark, value in marks.items():
        log = log.replace(mark, str(value))
    script = Path(job["folder"], f"slurm-script-{'-'.join(map(str, marks.values()))}")
    script.write_text(job["script"])
    script.chmod(0o700)
    with Path(job["folder"], log).open("wb") as opened:
        return subprocess.Popen(
            [str(script)],
            env={**job["environment"], "SLURM_JOB_ID": str(job["number"]), **variables},
            cwd=job["folder"],
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=subprocess.STDOUT,
        )


def install(folder):
    """Write the programs sbatch and scancel to a folder, in which they store jobs."""
    for name in ("sbatch", "scancel"):
        program = folder / name
        program.write_text(
            f"#!{sys.executable} -IS\nimport sys\nfrom pathlib import Path\n"
            f"sys.path.insert(0, {str(Path(__file__).parent)!r})\nimport fake_slurm\n"
            f"fake_slurm.{name}(sys.argv[1:], Path({str(folder)!r}))\n"
        )
        program.chmod(0o700)
