"""Write a lock file with the SHA-256 of every pinned package for this platform: `make hashes`.

pip resolves `constraints.txt` without installing anything and reports the digest of each file that it would take.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from platform import machine
from typing import Any

HEAD = """# The packages of constraints.txt with the digests of their files, for one platform: {platform}.
# Written by `make hashes`. Install with: pip install --no-deps --require-hashes -r {name}
# Left out, because the package index does not have these builds: {absent}. Install them first, from a source you trust.
"""


def main() -> int:
    """Write the lock file that the command line names, beside constraints.txt."""
    constraints, target = (Path(argument) for argument in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
        subprocess.run([*command, "--report", str(report), "-r", str(constraints)], check=True)
        packages = json.loads(report.read_text())["install"]
    target.write_text(lock(packages, target.name))
    print(f"{target}: {len(packages)} packages")
    return 0


def lock(packages: list[dict[str, Any]], name: str) -> str:
    """The text of a lock file, from what pip reports."""
    lines, absent = [], []
    for package in packages:
        pinned = f"{package['metadata']['name']}=={package['metadata']['version']}"
        digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
        if "+" in pinned:  # a build of one's own, as torch's for CPUs alone
            absent.append(pinned)
        else:
            lines.append(f"{pinned} --hash=sha256:{digest}\n")
    platform = f"{sys.platform} {machine()}, Python {sys.version_info[0]}.{sys.version_info[1]}"
    head = HEAD.format(platform=platform, name=name, absent=", ".join(absent) or "none")
    return head + "".join(sorted(lines, key=str.lower))


if __name__ == "__main__":
    sys.exit(main())
