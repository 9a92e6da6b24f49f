"""Build the site from the repository's files: README.md is its home page, and linked files outside docs/ are included.

Pages link to files by their path in the repository, so that links also work in an editor and on GitHub.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

HOME = {"index.md": "README.md"}
OUTSIDE = "repository/"  # the site's folder for files from outside docs/
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the home page, and every file outside docs/ that a page links to."""
    root = Path(config.config_file_path).parent
    todo = ["README.md", *(in_repository(page.src_uri) for page in files.documentation_pages())]
    for path in todo:  # grows while it is iterated
        if path in HOME.values() or not path.startswith("docs/"):
            files.append(_file_outside_docs(config, root, path))
        if path.endswith(".md"):
            linked = (_target(path, link) for link in LINK.findall((root / path).read_text(encoding="utf-8")))
            todo += [target for target in linked if (root / target).is_file() and _is_new(target, todo)]
    return files


def _is_new(path: str, todo: list[str]) -> bool:
    return not path.startswith(("docs/", "../")) and path not in todo


def _file_outside_docs(config: Any, root: Path, path: str) -> File:
    level = InclusionLevel.INCLUDED if path in HOME.values() else InclusionLevel.NOT_IN_NAV
    return File.generated(config, in_site(path), abs_src_path=str(root / path), inclusion=level)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files of the repository into links between files of the site."""
    site_path = page.file.src_uri
    repository_path = in_repository(site_path)

    def rewrite(link: re.Match[str]) -> str:
        return posixpath.relpath(in_site(_target(repository_path, link[1])), posixpath.dirname(site_path) or ".")

    return LINK.sub(rewrite, markdown)


def _target(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def in_repository(site: str) -> str:
    """The repository path of a file of the site."""
    return HOME.get(site) or (site.removeprefix(OUTSIDE) if site.startswith(OUTSIDE) else f"docs/{site}")


def in_site(repository: str) -> str:
    """The site path of a file of the repository."""
    for site, path in HOME.items():
        if path == repository:
            return site
    return repository.removeprefix("docs/") if repository.startswith("docs/") else OUTSIDE + repository
