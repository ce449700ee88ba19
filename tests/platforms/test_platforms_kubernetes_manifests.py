"""Manifests: texts, rights, resources, Secrets, staged files, Jobs and CronJobs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kubernetes_variables import expand

from hyperplane.platforms.kubernetes.batch_job import (
    build_cron_job,
    build_disruption_rule,
    build_exit_code_rule,
    build_job,
    build_job_pod,
)
from hyperplane.platforms.kubernetes.manifest_yaml import dump_yaml
from hyperplane.platforms.kubernetes.objects import (
    build_secret,
    escape_variables,
    parse_pairs,
    read_secret,
)
from hyperplane.platforms.kubernetes.pods import (
    build_configured_pod,
    build_container,
    build_secret_variable,
    build_unprivileged_pod,
    build_variables,
    format_quantities,
    round_to_millicores,
    select_nodes,
)
from hyperplane.platforms.kubernetes.staged_files import StagedFile, build_file_volumes, mount_files
from hyperplane.spec.settings import KubernetesSettings

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.text())
def test_no_text_contains_a_reference_that_kubernetes_expands(text: str) -> None:
    assert expand(escape_variables(text), {"A": "wrong", "PATH": "wrong"}) == text


@given(TEXTS)
def test_any_text_is_read_back_from_yaml(text: str) -> None:
    dumped = dump_yaml({"value": text})
    assert yaml.safe_load(dumped) == {"value": text}
    assert dumped.count("\n") == 1


@given(TEXTS)
def test_any_text_is_read_back_from_yaml_with_blocks(text: str) -> None:
    assert yaml.safe_load(dump_yaml({"value": text}, blocks=True)) == {"value": text}


def test_texts_are_quoted_unless_every_parser_reads_them_as_text() -> None:
    # Kubernetes' parser reads y as true and 1e3 as a number, Python's does not.
    tricky = ("y", "n", "on", "No", "true", "null", "1e3", "0x1f", "0o7", "1_0", ".5", "~", "=", "")
    for text in tricky:
        for blocks in (False, True):
            dumped = dump_yaml({"value": text}, blocks=blocks).strip()
            assert dumped.endswith(("'", '"')), dumped
    assert dump_yaml({"value": "batch/v1"}) == "value: batch/v1\n"


def test_several_lines_are_one_quoted_line_or_a_block() -> None:
    assert dump_yaml({"value": "a\nb\n"}) == 'value: "a\\nb\\n"\n'
    assert dump_yaml({"value": "a\nb\n"}, blocks=True) == "value: |\n  a\n  b\n"


def test_yaml_has_no_anchors() -> None:
    labels = {"team": "flights"}
    text = dump_yaml({"one": labels, "two": labels})
    assert text == "one:\n  team: flights\ntwo:\n  team: flights\n"


def test_a_secret_belongs_to_its_owner_and_is_read_back() -> None:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "n", "uid": "u", "labels": {"team": "a"}},
        "spec": {},
    }
    contents = {"TOKEN": "s3cret ü".encode(), "file": b"\xff\0"}
    secret = build_secret(owner, "n-secret", {"team": "a"}, contents)
    assert secret["metadata"] == {
        "name": "n-secret",
        "labels": {"team": "a"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "n", "uid": "u"}],
    }
    assert "s3cret" not in str(secret)
    assert read_secret(secret) == contents


def test_a_container_gets_no_privileges_and_its_policy_only_if_there_is_one() -> None:
    plain = build_container("step", "tools:1", command=["true"])
    assert list(plain) == ["name", "image", "command", "securityContext"]
    assert plain["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert build_container("step", "tools:1", pull_policy="Always")["imagePullPolicy"] == "Always"


def test_pods_may_do_nothing_that_their_program_does_not_need() -> None:
    pod = build_unprivileged_pod()
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert "enableServiceLinks" not in pod
    assert build_unprivileged_pod(service_links=False)["enableServiceLinks"] is False


def test_settings_are_fields_of_the_pod() -> None:
    assert build_configured_pod(KubernetesSettings(), {}) == build_unprivileged_pod(
        service_links=False
    )
    settings = KubernetesSettings.model_validate(
        {
            "service_account": "dask",
            "image_pull_secrets": ["registry"],
            "run_as_user": 0,
            "run_as_non_root": False,
            "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}],
        }
    )
    pod = build_configured_pod(settings, {"disk": "ssd"})
    assert pod["securityContext"]["runAsUser"] == 0
    assert pod["securityContext"]["runAsNonRoot"] is False
    assert pod["serviceAccountName"] == "dask"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}]


@pytest.mark.parametrize(
    ("pool", "alias", "expected"),
    [
        ("16_16", "medium", {"pool": "16_16", "size": "p-medium", "disk": "ssd"}),
        ("16_16", "", {"pool": "16_16", "size": "p-", "disk": "ssd"}),
        ("", "", {"disk": "ssd"}),
    ],
)
def test_nodes_are_those_of_the_pool(pool: str, alias: str, expected: dict[str, str]) -> None:
    settings = KubernetesSettings(node_selector=("pool={pool}", "size=p-{alias}", "disk=ssd"))
    assert select_nodes(settings, pool, alias) == expected


def test_variables_are_texts_or_references_to_secrets() -> None:
    assert build_variables({"A": "$(HOME) $"}) == [{"name": "A", "value": "$$(HOME) $$"}]
    reference = {"secretKeyRef": {"name": "database", "key": "password"}}
    found = build_secret_variable("DATABASE_PASSWORD", "database", "password")
    assert found == {"name": "DATABASE_PASSWORD", "valueFrom": reference}
    assert parse_pairs(["A=1=2", "B="]) == {"A": "1=2", "B": ""}


def test_resources_are_whole_units_and_only_those_that_are_stated() -> None:
    assert format_quantities() == {}
    assert format_quantities(memory=0) == {"memory": "0"}
    amounts = {"cpu": "500m", "memory": "1", "nvidia.com/gpu": "2"}
    assert format_quantities(millicores=500, memory=1, gpus=2) == amounts
    assert [round_to_millicores(cores) for cores in (0.5, 4.03, 1e-4, 6 * 2.1)] == [
        500,
        4030,
        1,
        12600,
    ]


def test_staged_files_are_mounted_and_the_variables_beside_them_are_not() -> None:
    files = [StagedFile("hyperplane-file", "/job/$(x).py", b"1")]
    assert mount_files(files) == [
        {
            "name": "files",
            "mountPath": "/job/$(x).py",
            "subPath": "hyperplane-file",
            "readOnly": True,
        }
    ]
    [volume] = build_file_volumes("n", files)
    assert volume["name"] == "files"
    assert volume["secret"] == {
        "secretName": "n",
        "items": [{"key": "hyperplane-file", "path": "hyperplane-file"}],
        "defaultMode": 0o555,
    }
    assert build_file_volumes("n", []) == mount_files([]) == []


def job(**options: Any) -> dict[str, Any]:
    """Return a Job with one container."""
    pod = build_job_pod(build_container("step", "tools:1"), build_unprivileged_pod(), grace=9.5)
    return build_job("n", {"a": "b"}, {"c": "d"}, pod, retry={"backoffLimit": 0}, **options)


def test_a_job_and_its_pods_have_the_same_labels() -> None:
    manifest = job(pod_annotations={"e": "f"})
    assert manifest["metadata"] == {"name": "n", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    template = manifest["spec"]["template"]
    assert template["metadata"] == {"labels": {"a": "b"}, "annotations": {"e": "f"}}
    assert template["spec"]["restartPolicy"] == "Never"
    assert template["spec"]["terminationGracePeriodSeconds"] == 10
    assert "volumes" not in template["spec"]
    assert manifest["spec"]["backoffLimit"] == 0
    assert manifest["spec"]["ttlSecondsAfterFinished"] == 86_400


def test_limits_of_a_job_and_of_its_pods_are_whole_seconds() -> None:
    plain = job()["spec"]
    assert not {"suspend", "activeDeadlineSeconds"} & set(plain)
    limited = job(suspend=False, deadline=0.2)["spec"]
    assert (limited["suspend"], limited["activeDeadlineSeconds"]) == (False, 1)
    pod = build_job_pod({}, {}, grace=0, deadline=1.5, volumes=[{"name": "x"}])
    assert (pod["activeDeadlineSeconds"], pod["volumes"]) == (2, [{"name": "x"}])


def test_rules_on_failures() -> None:
    condition = {"type": "DisruptionTarget", "status": "True"}
    assert build_disruption_rule("Ignore") == {"action": "Ignore", "onPodConditions": [condition]}
    codes = {"containerName": "step", "operator": "In", "values": [2, 64]}
    assert build_exit_code_rule("FailJob", "step", (2, 64)) == {
        "action": "FailJob",
        "onExitCodes": codes,
    }


@pytest.mark.parametrize(("overlap", "policy"), [(True, "Allow"), (False, "Forbid")])
def test_a_cron_job_starts_jobs_with_one_attempt(overlap: bool, policy: str) -> None:
    pod = build_job_pod(build_container("job", "tools:1"), build_unprivileged_pod(), grace=30)
    manifest = build_cron_job("tidy", {"a": "b"}, pod, schedule="0 6 * * *", overlap=overlap)
    assert manifest["kind"] == "CronJob"
    assert manifest["spec"]["concurrencyPolicy"] == policy
    assert (manifest["spec"]["schedule"], manifest["spec"]["timeZone"]) == ("0 6 * * *", "Etc/UTC")
    started = manifest["spec"]["jobTemplate"]["spec"]
    assert started["backoffLimit"] == 0
    assert started["template"] == {"metadata": {"labels": {"a": "b"}}, "spec": pod}
