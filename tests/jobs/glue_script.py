"""Runs of the script of Glue jobs without S3: its bucket is a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hyperplane.jobs.runners import driver_program

#: Seconds in which Spark starts and a program runs on a busy machine.
SECONDS = 280
#: A module in place of boto3, whose buckets are folders.
BOTO3 = """
import os, pathlib
class Client:
    def get_object(self, Bucket, Key):
        return {"Body": open(os.path.join(os.environ["BUCKETS"], Bucket, Key), "rb")}
    def put_object(self, Bucket, Key, Body):
        pathlib.Path(os.environ["BUCKETS"], Bucket, Key).write_bytes(Body)
def client(name):
    return Client()
"""


def run_script(
    interpreter: Sequence[str], folder: Path, program: str, manifest: str = "manifest"
) -> subprocess.CompletedProcess[str]:
    """Run the script as Glue does, with objects of the bucket ``folder / "flights"``.

    The exit code is then in its object ``outcome``.
    """
    (folder / "boto3.py").write_text(BOTO3)
    words = ["--JOB_NAME", "x"]
    values = ("flights", program, manifest, "outcome")
    for key, value in zip(driver_program.ARGUMENTS, values, strict=True):
        words += [driver_program.PREFIX + key, value]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": str(folder),
        "PYTHONIOENCODING": "utf-8",
        "BUCKETS": str(folder),
    }
    return subprocess.run(
        [*interpreter, str(driver_program.__file__), *words, "--TempDir", "s3://x"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=SECONDS,
    )
