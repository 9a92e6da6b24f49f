"""Files that describe the project agree with each other: versions, Python versions, continuous integration."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml
from doc_pages import ROOT

import saod_ray

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def test_the_version_is_written_once() -> None:
    assert "version" not in PROJECT["project"] and PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "saod_ray.__version__"}
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == saod_ray.__version__


def test_the_makefile_accepts_the_python_versions_of_the_package() -> None:
    oldest = re.fullmatch(r">=(\d+)\.(\d+)", PROJECT["project"]["requires-python"])
    assert oldest and f"sys.version_info < ({oldest[1]}, {oldest[2]})" in (ROOT / "Makefile").read_text()


def test_the_workflow_runs_the_ci_script_on_the_tested_python() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert {"run": ".ci/run"} in job["steps"] and (ROOT / ".ci/run").is_file()
    (python,) = (step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", ""))
    assert f"Programming Language :: Python :: {python}" in PROJECT["project"]["classifiers"]


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name)
def test_issue_templates_are_forms(path) -> None:
    form = yaml.safe_load(path.read_text())
    assert path.name == "config.yml" or {"name", "description", "body"} <= form.keys()


def test_the_changelog_has_the_sections_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.M)[0] == "[Unreleased]"
    assert set(re.findall(r"^### (.+)$", text, re.M)) <= {
        "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security",
    }  # fmt: skip


def test_the_files_to_copy_exist() -> None:
    paths = re.findall(r"`((?:saod_ray|tests|docs|examples)/[\w./-]+)`", CONTRIBUTING)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
