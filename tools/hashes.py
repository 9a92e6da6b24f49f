"""Write a lock file with the SHA-256 of every pinned package for this platform: `make hashes`.

pip resolves `constraints.txt` without installing anything and reports the digest of each file that it would take.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = """# The packages of constraints.txt with the digests of their files, for one platform: {platform}.
# Written by `make hashes`. Install with: pip install --no-deps --require-hashes -r {name}
"""


def main() -> int:
    """Write the lock file that the command line names, beside constraints.txt."""
    constraints, target = (Path(argument) for argument in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
        subprocess.run([*command, "--report", str(report), "-r", str(constraints)], check=True)
        items = json.loads(report.read_text())["install"]
    lines = []
    for item in items:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    head = HEAD.format(platform=f"{sys.platform}, Python {sys.version_info[0]}.{sys.version_info[1]}", name=target.name)
    target.write_text(head + "".join(sorted(lines, key=str.lower)))
    print(f"{target}: {len(lines)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
