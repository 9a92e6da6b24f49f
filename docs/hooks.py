"""The site is made of the repository's own files: README.md is its home, and the files that pages link to come along.

Pages link to files as they lie in the repository, so that the links work in an editor and on a forge, too.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

HOME = {"index.md": "README.md"}
OUTSIDE = "repository/"  # where the site keeps what does not lie in docs/
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the home page, and every file outside of docs/ that a page links to."""
    root = Path(config.config_file_path).parent
    todo = ["README.md", *(in_repository(page.src_uri) for page in files.documentation_pages())]
    for path in todo:  # grows by what it leads to
        if path in HOME.values() or not path.startswith("docs/"):
            files.append(_brought(config, root, path))
        if path.endswith(".md"):
            linked = (_target(path, link) for link in LINK.findall((root / path).read_text(encoding="utf-8")))
            todo += [each for each in linked if (root / each).is_file() and _is_new(each, todo)]
    return files


def _is_new(path: str, todo: list[str]) -> bool:
    return not path.startswith(("docs/", "../")) and path not in todo


def _brought(config: Any, root: Path, path: str) -> File:
    shown = InclusionLevel.INCLUDED if path in HOME.values() else InclusionLevel.NOT_IN_NAV
    return File.generated(config, in_site(path), abs_src_path=str(root / path), inclusion=shown)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files of the repository into links between files of the site."""
    here, there = page.file.src_uri, in_repository(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        return posixpath.relpath(in_site(_target(there, link[1])), posixpath.dirname(here) or ".")

    return LINK.sub(moved, markdown)


def _target(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def in_repository(site: str) -> str:
    """Where a file of the site lies in the repository."""
    return HOME.get(site) or (site.removeprefix(OUTSIDE) if site.startswith(OUTSIDE) else f"docs/{site}")


def in_site(repository: str) -> str:
    """Where a file of the repository lies in the site."""
    for site, path in HOME.items():
        if path == repository:
            return site
    return repository.removeprefix("docs/") if repository.startswith("docs/") else OUTSIDE + repository
