"""A step of a pipeline that takes its parameters and credentials as published jobs do."""

import json
import os
import sys
from pathlib import Path

from hyperplane import notebook_common as nc
from hyperplane.utils import is_jhub

env = os.environ.get("HYPERPLANE_JOB_PARAMETER_ENV") or "dev"
full = (
    os.environ.get("HYPERPLANE_JOB_PARAMETER_BUILD_FLAG")
    if os.environ.get("HYPERPLANE_JOB_PARAMETER_BUILD_FLAG")
    else "incremental"
)
folder = Path("session_secrets" if nc.is_jhub() else "job_secrets")
credentials = json.loads((folder / "warehouse.json").read_text())[env]
slack = nc.SlackHelper()
slack.post_message(json.dumps({"env": env, "full": full}), channel="#loads")
slack.post_table({"table": ["orders"], "rows": [914]}, channel="#loads")
report = {"env": env, "full": full, "user": credentials["user"], "session": is_jhub()}
Path(sys.argv[1] if len(sys.argv) > 1 else "report.json").write_text(json.dumps(report))
