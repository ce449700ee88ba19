"""Quotas of an account of Amazon for vCPUs, from Service Quotas."""

from __future__ import annotations

from typing import NamedTuple

from hyperplane.platforms.aws.errors import AwsError
from hyperplane.platforms.aws.session import AwsSession

#: Type of a compute environment -> code of the service, code of the quota, and what it counts. That
#: of EC2 is for instances of the standard families; those with GPUs have other quotas.
_QUOTAS = {
    "FARGATE": ("fargate", "L-3032A538", "vCPUs of Fargate"),
    "FARGATE_SPOT": ("fargate", "L-36FBB829", "vCPUs of Fargate Spot"),
    "EC2": ("ec2", "L-1216C47A", "vCPUs of standard on-demand instances of EC2"),
    "SPOT": ("ec2", "L-34B43A08", "vCPUs of standard spot instances of EC2"),
}


class VcpuQuota(NamedTuple):
    """The most vCPUs that an account may have at once in a region.

    Parameters
    ----------
    amount : float or None
        The number; None if it cannot be asked.
    counted : str
        What it counts.
    reason : str
        Why it cannot be asked.
    """

    amount: float | None
    counted: str
    reason: str = ""

    def describe(self) -> str:
        """Return it as text.

        Examples
        --------
        >>> VcpuQuota(6.0, "vCPUs of Fargate").describe()
        'at most 6 vCPUs of Fargate at once in this account and region'
        """
        if self.amount is None:
            return f"unknown number of {self.counted}: {self.reason}"
        return f"at most {self.amount:g} {self.counted} at once in this account and region"


def read_vcpu_quota(session: AwsSession, kind: str) -> VcpuQuota | None:
    """Return the quota for a type of compute environment; None for an unknown type."""
    if kind not in _QUOTAS:
        return None
    service, code, counted = _QUOTAS[kind]
    try:
        answer = session.call(
            "service-quotas", "get_service_quota", ServiceCode=service, QuotaCode=code
        )
        return VcpuQuota(float(answer["Quota"]["Value"]), counted)
    except (KeyError, TypeError, ValueError):
        return VcpuQuota(None, counted, "the answer of Service Quotas has no value")
    except AwsError as error:  # such as a missing permission
        return VcpuQuota(None, counted, str(error))
