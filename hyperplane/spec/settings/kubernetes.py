"""Settings of pods, and of the kubernetes engine of Dask."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from hyperplane.core.pydantic_faults import text_like
from hyperplane.core.units import advise_on_size, parse_bytes
from hyperplane.spec.settings.base import EngineSettings, LeaseSettings

_CPU = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?|[0-9]{1,9}m")


def millicores(value: str | float) -> int:
    """Convert cores, or text such as ``"1500m"``, to millicores, rounded down.

    Raises
    ------
    ValueError
        For other values, and for less than one millicore.

    Examples
    --------
    >>> millicores("1500m"), millicores(1.5), millicores("2")
    (1500, 1500, 2000)
    """
    text = str(value).strip()
    if not _CPU.fullmatch(text):
        raise ValueError("cores such as 1.5, or text such as '1500m'")
    # Rounded first, because 0.29 * 1000 is 289.99999999999994.
    number = int(text[:-1]) if text.endswith("m") else int(round(float(text) * 1000, 3))
    if number < 1:
        raise ValueError("at least a thousandth of a core, '1m'")
    return number


def _check_cpu(value: str | float) -> str | float:
    millicores(value)
    return value


def _check_bytes(value: str | int) -> str | int:
    try:
        parse_bytes(str(value))
    except ValueError:
        advice = advise_on_size(str(value))
        allowed = "a memory size such as '4Gi' or '4GB'"
        raise ValueError(f"{allowed}; {advice}" if advice else allowed) from None
    return value


_KEY = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"

# The grammar of references to images: [domain[:port]/]path[:tag][@algorithm:digest].
_DOMAIN_PART = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_DOMAIN = rf"({_DOMAIN_PART}(\.{_DOMAIN_PART})*|\[[0-9a-fA-F:]+\])(:[0-9]{{1,5}})?"
_PATH_PART = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}"
_DIGEST = r"(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}|blake3:[0-9a-f]{64})"

#: Name of an image, such as registry/name:tag.
_IMAGE = rf"({_DOMAIN}/)?{_PATH_PART}(/{_PATH_PART})*(:{_TAG})?(@{_DIGEST})?"

#: Maximum length of the name of an image.
_LONGEST_IMAGE = 512


def check_image(value: str) -> str:
    """Return the name of an image; raise ValueError if it is none."""
    if len(value) > _LONGEST_IMAGE or not re.fullmatch(_IMAGE, value):
        raise ValueError(
            "the name of an image, such as registry.example/name:tag, in lower case except the "
            "tag, or with a digest as in name@sha256: and 64 hexadecimal digits"
        )
    return value


#: Name of a Kubernetes object.
Name = Annotated[
    str,
    text_like(
        r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
        "a name of lower-case letters, digits, - and ., such as my-account",
    ),
]
Namespace = Annotated[
    str,
    text_like(
        r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        "a name of at most 63 lower-case letters, digits and -, such as team-a",
    ),
]
Image = Annotated[
    str, AfterValidator(check_image), Field(json_schema_extra={"pattern": f"^{_IMAGE}$"})
]
#: A "key=value" text instead of a mapping, because Dask does not distinguish - and _ in keys.
Label = Annotated[
    str,
    text_like(f"^{_KEY}={_LABEL}$", "the key and value of a label, such as team=data"),
]
#: A label whose value may contain {pool} or {alias}.
PoolLabel = Annotated[
    str,
    text_like(
        f"^{_KEY}=" + r"([-A-Za-z0-9_.]|\{pool\}|\{alias\}){0,63}$",
        "the key and value of a label, such as pool={pool}",
    ),
]
Annotation = Annotated[
    str,
    text_like(
        f"^{_KEY}=" + r"[^\x00-\x1f]*$",
        "the key and value of an annotation, such as example.com/owner=ada",
    ),
]
Variable = Annotated[
    str,
    text_like(
        r"^[A-Za-z_][A-Za-z0-9_]*=[^\x00]*$",
        "the name and value of a variable, such as OMP_NUM_THREADS=1",
    ),
]
Cpu = Annotated[str | float, AfterValidator(_check_cpu)]
Bytes = Annotated[str | int, AfterValidator(_check_bytes)]


class Toleration(BaseModel):
    """A Kubernetes toleration: a taint of nodes that pods tolerate."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    key: Annotated[str, text_like(f"^{_KEY}$", "a key, such as example.com/gpu")] | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: (
        Annotated[
            str,
            text_like(f"^{_LABEL}$", "at most 63 letters, digits and - _ ., such as large-memory"),
        ]
        | None
    ) = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Annotated[int | None, Field(ge=0, alias="tolerationSeconds")] = None


class PodSettings(EngineSettings):
    """Settings of pods of any framework; ``config/engines.yaml`` explains each."""

    section: ClassVar[str] = "kubernetes"

    image: Image | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: tuple[Name, ...] = ()
    namespace: Namespace | None = None
    service_account: Name | None = None
    node_selector: tuple[PoolLabel, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    labels: tuple[Label, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    environ: tuple[Variable, ...] = ()
    run_as_non_root: bool = True
    run_as_user: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None


class ClusterPodSettings(PodSettings):
    """Settings of the pods of a cluster, and of the connection to them."""

    scheduler_node_selector: tuple[Label, ...] = ()
    scheduler_cpu: Cpu = 1.0
    scheduler_ram: Bytes = "2Gi"
    memory_overhead: Bytes = "0"
    cpu_reserved: Annotated[float, Field(gt=0, le=1)] = 1.0
    port_forward: Literal["auto", "always", "never"] = "auto"
    security: Literal["tls", "none"] = "tls"


class KubernetesSettings(LeaseSettings, ClusterPodSettings):
    """Settings of the kubernetes engine; ``config/engines.yaml`` explains each."""


class KubernetesJobSettings(KubernetesSettings):
    """Settings of steps that run on Kubernetes; ``root`` is the pipeline's folder in the image."""

    root: (
        Annotated[str, text_like(r"^/[^\x00-\x1f]*$", "an absolute path, such as /app")] | None
    ) = None
    kubeconfig: Annotated[str, StringConstraints(min_length=1)] | None = None
    context: Annotated[str, StringConstraints(min_length=1)] | None = None
