"""Submit and cancel the jobs of mutations, with the checks of ``hyperplane.jobs.submit``."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from hyperplane import config
from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.jobs import job_control
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.pipeline_file import SCRIPT_KINDS, read_pipeline
from hyperplane.jobs.definition.referenced_files import is_folder
from hyperplane.jobs.store.job_records import CANCELLED, OPEN, Job
from hyperplane.jobs.store.jobs_home import open_store, this_machine
from hyperplane.jobs.submission.option_checks import label_faults, option_faults
from hyperplane.jobs.submission.parameters import parameter_faults
from hyperplane.jobs.submission.submission_snapshot import LONGEST_MESSAGE, NoticeRequest
from hyperplane.spec.settings.jobs import check_target
from hyperplane.ui.graphql_api.context import StoreSnapshot
from hyperplane.ui.graphql_api.filter_checks import text_faults
from hyperplane.ui.graphql_api.job_filters import PipelineJobWhereInput, find_jobs
from hyperplane.ui.graphql_api.job_inputs import (
    PipelineJobCreateInput,
    PipelineJobUpdateInput,
    PipelineJobWithAlertingCreateInput,
)
from hyperplane.ui.graphql_api.job_types import IMMEDIATE
from hyperplane.ui.graphql_api.sessions import refuse_parameters

#: Folder with the repository on the platform, which published programs name.
_CHECKOUT = PurePosixPath("/tmp/git/monorepo")  # noqa: S108 - a name of the platform
#: Fields of the platform that change what a job does, and what to do instead.
_NOT_HERE = {
    "podSpec": "the steps run in the environment of hyperplane ui, in no container; 'hyperplane "
    "job submit' has the runners kubernetes and aws_batch",
    "imageHash": "the steps run in the environment of hyperplane ui, in no container",
    "exposedPort": "nothing is exposed: use 'hyperplane serve', or start the server as a program",
    "cloudSqlProxyEnabled": "start the proxy yourself",
    "hyperplaneCloudSqlProxyId": "start the proxy yourself",
    "hyperplaneSecrets": "name the secrets of each step in the pipeline file, under secrets",
    "maxRetriesPerStep": "set retries of each step in the pipeline file",
    "timeoutPerStep": "set timeout of each step in the pipeline file",
}
#: Names of arguments of ``new_job``, and of the fields that they have here.
_FIELDS = {
    "path": "pipelineYamlPath", "root": "workingDir", "name": "jobName", "job_type": "jobType",
    "active_timeout": "activeTimeout", "max_retries": "maxRetries",
}  # fmt: skip
_ORIGIN = "with GraphQL"


def submit(given: PipelineJobCreateInput, folder: Path) -> tuple[Job, list[str]]:
    """Submit a job; return it and warnings of possible mistakes.

    Parameters
    ----------
    given : PipelineJobCreateInput
        The fields of the mutation.
    folder : Path
        Folder that the path of the pipeline is relative to.

    Raises
    ------
    RequestError
        With every fault; nothing was submitted.
    """
    faults = [*_platform_faults(given), *_repeated_names(given), *_message_faults(given)]
    targets, target_problems = _find_targets(given)
    faults += target_problems
    warnings: list[str] = []
    options: dict[str, Any] = {
        "name": given.job_name or None,
        "timeout": given.timeout,
        "active_timeout": given.active_timeout,
        "max_retries": given.max_retries,
    }
    parameters = {each.key: each.value for each in _parameters(given)}
    label, job = given.job_type or None, None
    try:
        pipeline, warnings = _read_pipeline(given, folder)
    except RequestError as error:
        # The other faults are reported, too.
        found = [*error.faults, *option_faults(**options), *parameter_faults(parameters)]
        faults += found + ([] if label is None else label_faults(label))
    else:
        try:
            job = job_control.new_job(pipeline, job_type=label, parameters=parameters, **options)
        except RequestError as error:
            faults += error.faults
    faults = [replace(each, where=_FIELDS.get(each.where, each.where)) for each in faults]
    try:
        check(faults)
    except RequestError as error:
        error.state("nothing was submitted")
        raise
    assert job is not None  # noqa: S101 - else there are faults
    warnings += job_control.job_warnings(job)
    notices = NoticeRequest(targets, given.custom_message or "")
    job_control.submit_job(job, warn=False, notify=notices)
    return job, warnings


def cancel(job_id: str, change: PipelineJobUpdateInput) -> Job:
    """Cancel a job; return it as it is then.

    Raises
    ------
    RequestError
        If the change is another one.
    JobError
        If there is no such job.
    """
    _check_change(change)
    check(text_faults(job_id, "where.id"))
    job = job_control.cancel(job_id, by=_ORIGIN)
    return job if job.processed else replace(job, status=CANCELLED)


def cancel_many(where: PipelineJobWhereInput, change: PipelineJobUpdateInput) -> int:
    """Cancel this user's open jobs on this machine that meet conditions; return how many.

    Raises
    ------
    RequestError
        If a condition or the filter is null or empty, so that more jobs than intended may be
        cancelled, or for another change.
    """
    _check_change(change)
    jobs = [each for each in find_jobs(StoreSnapshot(), where, strict=True)
            if each.status in OPEN and each.machine == this_machine()]  # fmt: skip
    for job in jobs:
        job_control.cancel(job.id, by=_ORIGIN)
    return len(jobs)


def find_job(job_id: str) -> Job | None:
    """Return the job with an id; None if there is none."""
    check(text_faults(job_id, "where.id"))
    return open_store().get_many([job_id]).get(job_id)


def _check_change(change: PipelineJobUpdateInput) -> None:
    if change.parameters is not None:
        refuse_parameters("data.parameters")
    if change.status is None or change.status.set != CANCELLED:
        given = "nothing" if change.status is None else describe_value(change.status.set)
        check([Fault("data.status.set", given, f"'{CANCELLED}', the only change")])


def _platform_faults(given: PipelineJobCreateInput) -> list[Fault]:
    secrets = given.hyperplane_secrets
    values: dict[str, Any] = {
        "podSpec": given.pod_spec, "imageHash": given.image_hash, "exposedPort": given.exposed_port,
        "cloudSqlProxyEnabled": given.cloud_sql_proxy_enabled,
        "hyperplaneCloudSqlProxyId": given.hyperplane_cloud_sql_proxy_id,
        "hyperplaneSecrets": secrets and secrets.connect,
        "maxRetriesPerStep": given.max_retries_per_step, "timeoutPerStep": given.timeout_per_step,
    }  # fmt: skip
    faults = [
        Fault(name, "", "not available here", _NOT_HERE[name])
        for name, value in values.items()
        if value
    ]
    if given.schedule and given.schedule != IMMEDIATE:
        advice = "'hyperplane job schedule' installs a job in the crontab"
        faults.append(
            Fault("schedule", describe_value(given.schedule), f"'{IMMEDIATE}', or nothing", advice)
        )
    return faults


def _message_faults(given: PipelineJobCreateInput) -> list[Fault]:
    text = given.custom_message or ""
    faults = text_faults(text, "customMessage")
    if len(text) > LONGEST_MESSAGE:
        allowed = f"at most {LONGEST_MESSAGE:,} characters"
        faults.append(Fault("customMessage", f"{len(text):,} characters", allowed))
    return faults


def _parameters(given: PipelineJobCreateInput) -> Sequence[Any]:
    return () if given.parameters is None else given.parameters.create or ()


def _repeated_names(given: PipelineJobCreateInput) -> list[Fault]:
    """Return a fault for each name that is repeated, of which only one value would count."""
    counts = Counter(each.key for each in _parameters(given))
    return [
        Fault(f"parameters[{ascii(key)[:60]}]", f"{count} values", "one value")
        for key, count in counts.items()
        if count > 1
    ]


def _find_targets(given: PipelineJobCreateInput) -> tuple[list[str] | None, list[Fault]]:
    """Return where to send a message, and faults; None for the configured targets."""
    if not isinstance(given, PipelineJobWithAlertingCreateInput):
        return None, []
    named = given.notification_target_ids or []
    if given.notifications_enabled is None and not named:
        return None, []
    if given.notifications_enabled is False:
        return [], []
    targets = named or list(config.jobs().notify)
    where = "notificationTargetIds"
    if not targets:
        advice = "pass 'webhook' or 'slack:#channel', or set hyperplane.jobs.notify"
        return None, [Fault(where, "nothing", "where to send a message", advice)]
    faults = []
    for target in targets:
        try:
            check_target(target)
        except ValueError as error:
            faults.append(Fault(where, describe_value(target), str(error)))
    return targets, faults


def _read_pipeline(given: PipelineJobCreateInput, folder: Path) -> tuple[Pipeline, list[str]]:
    """Return the pipeline that a path names, and warnings."""
    if not given.working_dir:
        file = _to_local(given.pipeline_yaml_path, folder)
        # Scripts run in the folder of the server, as in the repository on the platform.
        is_script = file.suffix.lower() in SCRIPT_KINDS and file.is_relative_to(folder)
        pipeline = read_pipeline(file, root=folder if is_script else None)
        return pipeline, _check_commit(given, file.parent)
    working = _to_local(given.working_dir, folder)
    if not is_folder(working):
        check([Fault("workingDir", describe_value(given.working_dir), "an existing folder")])
    # Paths are relative to the repository, which the working folder is usually the root of.
    root = folder if working.is_relative_to(folder) else working
    pipeline = read_pipeline(_to_local(given.pipeline_yaml_path, root), root=root)
    if working != root and pipeline.working_dir is None:
        relative = str(working.relative_to(root))
        pipeline = pipeline.model_copy(update={"working_dir": relative})
    return pipeline, _check_commit(given, root)


def _to_local(text: str, folder: Path) -> Path:
    """Return the path of a file; the repository of the platform is the folder of the server."""
    path = PurePosixPath(text)
    if path.is_relative_to(_CHECKOUT) and not Path(_CHECKOUT).exists():
        path = path.relative_to(_CHECKOUT)
    return Path(os.path.normpath(folder / path))


def _check_commit(given: PipelineJobCreateInput, folder: Path) -> list[str]:
    """Check the commit of the repository; return a warning if another branch is checked out."""
    if not (given.commit_id or given.branch_name):
        return []
    commit, branch = _run_git(folder, "rev-parse", "HEAD"), ""
    if given.commit_id and not (commit and commit.startswith(given.commit_id.lower())):
        allowed, advice = f"the commit that is checked out, {commit}", f"check it out in {folder}"
        if not commit:
            allowed = "a commit of a git repository"
            advice = f"git finds none in {folder}: use a folder of a repository"
        advice += ", or leave commitId out"
        check([Fault("commitId", describe_value(given.commit_id), allowed, advice)])
    if given.branch_name and commit:
        branch = _run_git(folder, "rev-parse", "--abbrev-ref", "HEAD")
    if branch and branch != given.branch_name:
        state = "no branch" if branch == "HEAD" else f"the branch {branch!r}"
        asked = describe_value(given.branch_name)
        return [f"branchName is {asked}, but {folder} is on {state}: the job runs its files"]
    return []


def _run_git(folder: Path, *arguments: str) -> str:
    """Return what git prints; nothing without git, or outside of a repository."""
    try:
        completed = subprocess.run(  # noqa: S603 - a fixed program
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - found on the PATH
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return "" if completed.returncode else completed.stdout.strip()
