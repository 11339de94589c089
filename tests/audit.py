"""Known vulnerabilities of what is installed: `python -m tests.audit`. It says where nobody can be asked."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

NOBODY = "NOT AUDITED: no advisory service can be reached from here, so nothing is known of any package.\n"
UNREACHABLE = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "Max retries", "ServiceError", "timed out")


def verdict(code: int, out: str, errors: str) -> tuple[int, str]:
    """The exit status and what to say of what pip-audit did.

    0 where nothing is known, or where nobody could be asked: that a registry without advisories knows of
    none is no finding.
    """
    try:
        packages: list[dict[str, Any]] = json.loads(out)["dependencies"]
    except (ValueError, KeyError):
        unreachable = any(word in errors for word in UNREACHABLE)
        return (0, NOBODY) if unreachable else (code or 1, errors)
    audited = [package for package in packages if "skip_reason" not in package]
    if not audited:
        return 0, NOBODY
    found = [
        f"{package['name']} {package['version']}: {known['id']}, "
        f"fixed in {', '.join(known['fix_versions']) or 'none'}\n"
        for package in audited
        for known in package.get("vulns", ())
    ]
    skipped = len(packages) - len(audited)
    said = (
        f"{len(audited)} packages audited, {skipped} unknown to the service, {len(found)} vulnerabilities.\n"
    )
    return (1 if found else 0), "".join(found) + said


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--skip-editable", "--format", "json"]
    command += ["--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except subprocess.TimeoutExpired:
        code, said = 0, NOBODY
    else:
        code, said = verdict(done.returncode, done.stdout, done.stderr)
    sys.stdout.write(said)
    return code


if __name__ == "__main__":
    sys.exit(main())
