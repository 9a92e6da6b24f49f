"""The help of every command, as snapshots and as rules."""

from __future__ import annotations

import re

import help_pages
import pytest

from saod_ray.cli import find_command
from saod_ray.cli.options import ADVANCED

COMMANDS = [pytest.param(words, id=" ".join(words) or "saod-ray") for words in help_pages.commands()]
LEAVES = [pytest.param(words, id=" ".join(words)) for words in help_pages.commands() if words not in ((), ("data",))]


@pytest.mark.parametrize("width", help_pages.WIDTHS)
@pytest.mark.parametrize("words", COMMANDS)
def test_help_is_as_the_snapshot_shows(words, width) -> None:
    page = help_pages.help_page(words, width)
    assert max(map(len, page.splitlines())) <= width
    assert page == help_pages.snapshot(words, width).read_text(encoding="utf-8"), (
        "The help has changed: if that is intended, run `python tests/help_pages.py` and look at the difference."
    )


def test_every_snapshot_has_a_command() -> None:
    expected = {help_pages.snapshot(words, width) for words in help_pages.commands() for width in help_pages.WIDTHS}
    assert set(help_pages.SNAPSHOTS.iterdir()) == expected


@pytest.mark.parametrize("words", LEAVES)
def test_every_parameter_is_described(words) -> None:
    command, _ = find_command(*words)
    for parameter in command.params:
        assert parameter.help and parameter.help.endswith("."), parameter.name
        metavar = parameter.metavar
        assert metavar is not None and re.fullmatch(r"|[A-Z_]+(\.\.\.)?|[A-Z]+([:,][A-Z]+)+", metavar), parameter.name


@pytest.mark.parametrize("words", LEAVES)
def test_every_command_has_two_examples_that_parse_and_a_page(words) -> None:
    import shlex

    command, _ = find_command(*words)
    examples = re.findall(r"^ *saod-ray (.+)$", command.epilog, re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        used, rest = find_command(*shlex.split(example))
        assert used.name == command.name
        used.make_context(used.name, rest)
    (page,) = re.findall(r"docs/([a-z]+\.md)", command.epilog)
    assert (help_pages.SNAPSHOTS.parent.parent / "docs" / page).is_file()


def test_run_shows_at_most_twelve_options_before_the_advanced_ones() -> None:
    command, _ = find_command("run")
    main = [option for option in command.params if option.rich_help_panel != ADVANCED]
    assert len(main) <= 12
