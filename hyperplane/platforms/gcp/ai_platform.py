"""Scale tiers and machine types of AI Platform, and their counterparts in Vertex AI."""

from __future__ import annotations

TIERS = ("BASIC", "STANDARD_1", "PREMIUM_1", "BASIC_GPU", "BASIC_TPU", "CUSTOM")
#: Machine of the tier BASIC.
BASIC_MACHINE = "n1-standard-4"
_CUSTOM_ADVICE = "give scaleTier: CUSTOM with masterType, workerType, workerCount and so on"
_GPU_ADVICE = (
    "give scaleTier: CUSTOM, masterType: n1-standard-8, and masterConfig: {acceleratorConfig: "
    "{count: 1, type: NVIDIA_TESLA_T4}}"
)
#: Tiers that Vertex AI does not have, and what to give instead.
TIER_ADVICE = {
    "STANDARD_1": _CUSTOM_ADVICE,
    "PREMIUM_1": _CUSTOM_ADVICE,
    "BASIC_GPU": _GPU_ADVICE,
    "BASIC_TPU": "give a tier without TPUs, such as CUSTOM with GPUs",
}
#: Former names of machine types, and those of Compute Engine.
FORMER_MACHINES = {
    "standard": "n1-standard-4",
    "large_model": "n1-highmem-8",
    "complex_model_m": "n1-highcpu-16",
    "complex_model_l": "n1-highcpu-32",
}
#: Former names of machines that Vertex AI does not have, and what to give instead.
GONE_MACHINES = {
    "complex_model_s": "give n1-highcpu-16 or n1-standard-8",
    "cloud_tpu": "give a machine type of Compute Engine, with GPUs if needed",
    **dict.fromkeys(
        (
            "standard_gpu", "complex_model_m_gpu", "complex_model_l_gpu", "standard_p100",
            "complex_model_m_p100", "standard_v100", "large_model_v100", "complex_model_m_v100",
            "complex_model_l_v100",
        ),
        _GPU_ADVICE,
    ),
}  # fmt: skip
