"""Every `expunge …` line that the documents print is a command line that the program takes."""

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from expunge.worker.cli import main
from expunge.worker.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").iterdir()
)
_BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def _lines() -> list[str]:
    found = []
    for document in DOCUMENTS:
        for block in _BLOCK.findall(document.read_text()):
            found += [line.removeprefix("$ ").split(" |")[0] for line in block.splitlines()]
        found += re.findall(r"`(expunge [a-z][^`]*)`", document.read_text())
    return sorted({line for line in found if line.startswith("expunge ")})


def test_there_are_some():
    assert len(_lines()) > 10


@pytest.mark.parametrize("line", _lines())
def test_the_program_takes_it(line):
    """Words and options are known. What a sentence leaves out (`expunge retry`, `expunge token`) may be missing."""
    _, name, *arguments = shlex.split(line)
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None
    try:
        command.make_context(name, arguments, parent=context)
    except (click.MissingParameter, click.exceptions.NoArgsIsHelpError):
        assert not arguments


def test_the_settings_that_are_shown_exist():
    for document in DOCUMENTS:
        for block in re.findall(r"^```toml\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE):
            assert set(tomllib.loads(block)) <= set(Settings.model_fields)


def test_the_makes_that_are_shown_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        assert set(re.findall(r"`make ([a-z-]+)`", document.read_text())) <= targets
