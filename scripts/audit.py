"""Ask an advisory service about the installed packages: ``python -m scripts.audit``.

It is no part of CI, which must not depend on a service: the result changes without a change of the
repository. The exit code is that of pip-audit, or 2 if no service can be reached.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

#: Services of pip-audit -> a page of the kind that it reads, which a mirror of packages may lack.
SERVICES = {
    "pypi": "https://pypi.org/pypi/pip/24.0/json",
    "osv": "https://api.osv.dev/v1/vulns/PYSEC-2021-871",
}
SECONDS = 20


def find_service() -> str | None:
    """Return the first service that can be reached; print why the others cannot."""
    for name, page in SERVICES.items():
        try:
            with urllib.request.urlopen(page, timeout=SECONDS):  # noqa: S310 - a constant
                return name
        except (OSError, ValueError) as error:
            print(f"{name} cannot be reached: {page}: {error}", file=sys.stderr)  # noqa: T201
    return None


def main() -> int:
    """Audit the packages of this environment, without the editable hyperplane."""
    service = find_service()
    if service is None:
        print("nothing was audited: no advisory service can be reached", file=sys.stderr)  # noqa: T201
        return 2
    freeze = [sys.executable, "-m", "pip", "list", "--format", "freeze", "--exclude-editable"]
    packages = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout  # noqa: S603
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text(packages, encoding="utf-8")
        audit = [sys.executable, "-m", "pip_audit", "--strict", "--vulnerability-service", service]
        audit += ["--progress-spinner", "off", "--no-deps", "--disable-pip", "-r", str(file)]
        return subprocess.run(audit, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
