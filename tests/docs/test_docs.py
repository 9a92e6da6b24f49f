from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import doc_pages
import pytest
import typer
from doc_pages import ROOT

from saod_ray.cli import find_command
from saod_ray.errors import SaodError

PAGES = doc_pages.pages()
TEXT = {doc_pages.name_of(page): page.read_text(encoding="utf-8") for page in PAGES}


def pages_to_run() -> list[object]:
    """The pages with runnable blocks; a page that starts Ray takes half a minute and is marked slow."""
    marked = {
        name: [block for block in doc_pages.blocks(text) if block.marker == "runnable"] for name, text in TEXT.items()
    }
    return [
        pytest.param(name, marks=[pytest.mark.slow] * any("saod-ray run" in block.text for block in runnable))
        for name, runnable in marked.items()
        if runnable
    ]


@pytest.mark.parametrize("name", pages_to_run())
def test_what_is_marked_runnable_runs(name, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    doc_pages.run(TEXT[name], tmp_path, name)


def test_the_pages_with_examples_are_run():
    names = {param.values[0] for param in pages_to_run()}
    assert names >= {"README.md", "docs/start.md", "docs/own.md", "docs/store.md", "docs/api.md"}


def test_blocks_of_a_page_share_a_folder_and_only_marked_ones_run(tmp_path):
    page = """
<!-- file said.txt -->
```text
hello
```
```sh
touch unmarked
```
<!-- runnable -->
```sh
cp said.txt copy.txt
```
<!-- runnable -->
```python
from pathlib import Path
assert Path("copy.txt").read_text() == "hello\\n"
```
"""
    doc_pages.run(page, tmp_path, "page.md")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.txt", "said.txt"]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "false\ntrue"),
        ("sh", "false | true"),
        ("sh", "saod-ray no-such-command"),
        ("python", "raise SystemExit(3)"),
    ],
)
def test_a_block_that_fails_is_named(language, text, tmp_path):
    page = f"# Page\n\n<!-- runnable -->\n```{language}\n{text}\n```\n"
    with pytest.raises(AssertionError, match=r"page\.md, line 4"):
        doc_pages.run(page, tmp_path, "page.md")


def test_a_marker_before_no_block_is_noticed():
    with pytest.raises(AssertionError, match="line 2"):
        doc_pages.blocks("<!-- runnable -->\n\nwords")
    with pytest.raises(AssertionError, match="runnable"):
        doc_pages.blocks("words\n<!-- runnable -->\n")


def test_a_misspelt_marker_is_noticed():
    with pytest.raises(AssertionError, match="line 1"):
        doc_pages.blocks("<!-- runable -->\n```sh\nfalse\n```\n")


@pytest.mark.parametrize("line", sorted({line for text in TEXT.values() for line in doc_pages.commands(text)}))
def test_commands_in_shell_blocks_parse(line):
    parse(shlex.split(line, comments=True)[1:])


@pytest.mark.parametrize("line", ["saod-ray scroe runs", "saod-ray score runs --tua 0.1", "saod-ray data build"])
def test_commands_that_do_not_exist_are_noticed(line):
    with pytest.raises((typer.TyperException, SaodError)):
        parse(shlex.split(line)[1:])


def parse(words: list[str]) -> None:
    """Parse a command's arguments with typer, without running it."""
    command, words = find_command(*words)
    command.make_context(command.name, words)


@pytest.mark.parametrize("name", [name for name, text in TEXT.items() if doc_pages.mentions(text)])
def test_commands_and_options_in_sentences_exist(name):
    for mention in doc_pages.mentions(TEXT[name]):
        words = shlex.split(mention)[1:]
        if words[0] == "COMMAND":
            continue
        command, rest = find_command(*words)
        options = {name for option in command.params for name in option.opts} | {"--help", "--version"}
        assert {word for word in rest if word.startswith("--")} <= options, mention


@pytest.mark.parametrize("name", [name for name, text in TEXT.items() if doc_pages.links(text)])
def test_links_lead_somewhere(name):
    for link in doc_pages.links(TEXT[name]):
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.is_file(), link
        if anchor:
            assert anchor in doc_pages.anchors(target.read_text(encoding="utf-8")), link


def test_every_decision_is_listed():
    folder = ROOT / "docs" / "decisions"
    listed = set(doc_pages.links(TEXT["docs/decisions/README.md"]))
    assert {page.name for page in folder.glob("0*.md")} <= listed


@pytest.mark.skipif(
    find_spec("material") is None or find_spec("mkdocstrings") is None,
    reason="needs mkdocs-material and mkdocstrings: pip install 'saod-ray[docs]'",
)
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    for page in PAGES:
        assert site_file(page, tmp_path / "site").is_file(), page
    for file in (tmp_path / "site").rglob("*.html"):
        fetched = re.findall(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"?https?://[^\s\">]+", file.read_text())
        assert fetched == [], file


def site_file(page: Path, site: Path) -> Path:
    """The HTML file that the site has for a page."""
    if page.name == "README.md":
        page = page.with_name("index.md")
    if page.is_relative_to(ROOT / "docs"):
        return (site / page.relative_to(ROOT / "docs")).with_suffix(".html")
    folder = site if page == ROOT / "index.md" else site / "repository"
    return (folder / page.relative_to(ROOT)).with_suffix(".html")
