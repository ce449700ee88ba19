"""Sessions of boto3 that read a given environment in place of that of this process.

A supervisor may run jobs that were submitted from several shells with different credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperplane.core.optional import need

#: Extra that installs boto3.
EXTRA = "aws"
#: Settings of a profile with a token of a web identity, and their variables.
_WEB_IDENTITY = {
    "web_identity_token_file": "AWS_WEB_IDENTITY_TOKEN_FILE",
    "role_session_name": "AWS_ROLE_SESSION_NAME",
    "role_arn": "AWS_ROLE_ARN",
}


def open_session(variables: Mapping[str, str], profile: str | None, region: str | None) -> Any:
    """Return a session of boto3 with the order of boto3: a profile, variables, files, roles.

    Parameters
    ----------
    variables : mapping of str to str
        Variables in place of those of this process.
    profile : str or None
        Profile that comes before all variables; that of ``AWS_PROFILE`` comes after the keys.
    region : str or None
        Region; that of the variables or the profile if None.
    """
    boto3 = need("boto3", "aws")
    from botocore.session import Session

    core = Session()
    core.register_component("config_store", _config_store(core, variables))
    session = boto3.Session(botocore_session=core, profile_name=profile, region_name=region)
    _replace_providers(core, variables, uses_variables=profile is None)
    return session


def _config_store(core: Any, variables: Mapping[str, str]) -> Any:
    """Return the configuration of a session, with other variables than those of the process."""
    from botocore import configprovider

    factory = configprovider.ConfigChainFactory(core, environ=variables)

    def chains(table: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        return {
            name: factory.create_config_chain(
                instance_name=name,
                env_var_names=names,
                config_property_names=properties,
                default=default,
                conversion_func=convert,
            )
            for name, (properties, names, default, convert) in table.items()
        }

    store = configprovider.ConfigValueStore(
        mapping=chains(configprovider.BOTOCORE_DEFAUT_SESSION_VARIABLES)
    )
    for section, table in (
        ("s3", configprovider.DEFAULT_S3_CONFIG_VARS),
        ("proxies_config", configprovider.DEFAULT_PROXIES_CONFIG_VARS),
    ):
        store.set_config_provider(
            section, configprovider.SectionConfigProvider(section, core, chains(table))
        )
    return store


def _replace_providers(core: Any, variables: Mapping[str, str], *, uses_variables: bool) -> None:
    """Replace the sources of credentials that read the environment of the process."""
    from botocore import credentials

    resolver = core.get_component("credential_provider")
    profile_name = core.get_config_variable("profile") or "default"
    given = {key: variables[name] for key, name in _WEB_IDENTITY.items() if variables.get(name)}

    def load_config() -> dict[str, Any]:
        config = core.full_config
        profiles: dict[str, dict[str, str]] = config.get("profiles", {})
        others = profiles.get(profile_name, {})
        changed = {**others, **given} if uses_variables else others
        return {**config, "profiles": {**profiles, profile_name: changed}}

    replacements = {
        "assume-role-with-web-identity": credentials.AssumeRoleWithWebIdentityProvider(
            load_config=load_config,
            client_creator=lambda service, **options: core.create_client(service, **options),
            profile_name=profile_name,
            disable_env_vars=True,
        ),
        "container-role": credentials.ContainerProvider(environ=variables),
    }
    if uses_variables:
        replacements["env"] = credentials.EnvProvider(environ=variables)
    # Files of the former tools of EC2 and boto, which variables of the process name.
    for name in ("ec2-credentials-file", "boto-config"):
        resolver.remove(name)
    for name, provider in replacements.items():
        resolver.insert_before(name, provider)  # both have the name; the first is removed
        position = [each.METHOD for each in resolver.providers].index(name)
        del resolver.providers[position + 1]
