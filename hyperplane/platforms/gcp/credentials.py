"""Credentials that a given environment names, in place of that of this process.

A supervisor may run jobs that were submitted from several shells with different credentials.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Variables of the credentials.
KEY_FILE, GCLOUD_FOLDER, NO_MACHINE = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "CLOUDSDK_CONFIG",
    "NO_GCE_CHECK",
)
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_LOGIN_FILE = "application_default_credentials.json"


def load_credentials(environment: Mapping[str, str]) -> tuple[Any, str | None]:
    """Return the application default credentials, and the project that they name.

    They are those of the file in ``GOOGLE_APPLICATION_CREDENTIALS``, of a login with
    ``gcloud auth application-default login``, or of the machine of Google, in this order.

    Raises
    ------
    google.auth.exceptions.GoogleAuthError
        If there are none.
    """
    import google.auth
    from google.auth import compute_engine, exceptions

    file = _find_file(environment)
    if file is None:
        if environment.get(NO_MACHINE, "").lower() == "true":
            raise exceptions.DefaultCredentialsError("there are no credentials")
        return compute_engine.Credentials(scopes=_SCOPES), None
    with warnings.catch_warnings():
        # It concerns files of others; this one is the user's own.
        warnings.filterwarnings("ignore", ".*load_credentials_from_file", DeprecationWarning)
        credentials, project = google.auth.load_credentials_from_file(str(file), scopes=_SCOPES)
    return credentials, project


def _find_file(environment: Mapping[str, str]) -> Path | None:
    """Return the file of the credentials; None if there is none."""
    if name := environment.get(KEY_FILE):
        return Path(name)
    folder = environment.get(GCLOUD_FOLDER)
    if folder is None:
        home = environment.get("HOME")
        if home is None:
            return None
        folder = str(Path(home, ".config", "gcloud"))
    file = Path(folder, _LOGIN_FILE)
    return file if file.exists() else None
