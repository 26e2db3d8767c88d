"""Known vulnerabilities of the locked versions, by pip-audit.

Exit codes: 0 none is known, or nobody could be asked (the last line says which); 1 some are
known. pip-audit itself exits with 1 for both, so its report decides.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

DEPLOY = Path(__file__).parent
LOCKS = ("requirements-image.lock", "requirements-build.lock")


def find_tool() -> str | None:
    """Return the path of pip-audit: beside this Python, or on the PATH."""
    beside = Path(sys.executable).with_name("pip-audit")
    return str(beside) if beside.exists() else shutil.which("pip-audit")


def audit(tool: str, lock: Path) -> Any:  # noqa: ANN401 - JSON
    """Return the report about a lock; None if there is none."""
    # Versions and hashes are locked: nothing is resolved, downloaded or installed.
    command = [tool, "--requirement", str(lock), "--require-hashes", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    try:
        return json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        sys.stderr.write(done.stderr)
        return None


def main() -> int:
    """Audit all locks; return the exit code."""
    tool = find_tool()
    if tool is None:
        print("not audited: there is no pip-audit (pipx install pip-audit)")  # noqa: T201
        return 0
    known = skipped = 0
    for name in LOCKS:
        report = audit(tool, DEPLOY / name)
        if report is None:
            print(f"not audited: pip-audit has no report on {name} (is it offline?)")  # noqa: T201
            return 0
        for package in report:
            # pip-audit skips what the index has no record of, and finds nothing wrong with it.
            skipped += "skip_reason" in package
            for fault in package.get("vulns", ()):
                known += 1
                fixed = ", ".join(fault.get("fix_versions", ())) or "no version yet"
                where = f"{name}: {package['name']} {package['version']}"
                print(f"{where}: {fault['id']}, fixed in {fixed}")  # noqa: T201
    if known:
        print(f"{known} known vulnerabilities")  # noqa: T201
    elif skipped:
        print(f"not audited: {skipped} packages could not be looked up")  # noqa: T201
    else:
        print("no known vulnerability")  # noqa: T201
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
