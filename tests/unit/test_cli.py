"""The command line as a whole: help, the options of every command, exit codes, errors in one line."""

import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from expunge.worker.cli import COMMANDS, READERS, main


def invoke(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


def every_command() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        if isinstance(command, click.Group):
            found += [(name, inner) for inner in command.commands]
        else:
            found.append((name,))
    return found


def test_help_lists_every_command_and_imports_none_of_them() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from expunge.worker.cli import main;"
        "print(CliRunner().invoke(main, ['--help']).output);"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'sqlalchemy', 'celery', 'boto3', 'openai', 'rich'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", done.stdout, re.MULTILINE)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", sorted(READERS))
def test_what_only_reads_the_database_imports_no_sdk_no_broker_and_no_migrations(command, tmp_path, sqlite_url) -> None:
    """Each of them takes as long to import as the command's own work."""
    config = tmp_path / "x.toml"
    config.write_text(
        f'database_url = "{sqlite_url}"\nbroker_url = "redis://127.0.0.1:1/0"\n'
        '[accounts.files]\nstore = "s3"\nregion = "eu-central-1"\nallow = ["b/"]\n'
        '[accounts.ai]\nstore = "openai"\nbase_url = "https://eu.api.openai.com/v1"\napi_key_env = "KEY"\n'
    )
    heavy = {"alembic", "boto3", "botocore", "celery", "httpx2", "kombu", "openai", "rich", "structlog"}
    code = (
        "import sys; from click.testing import CliRunner; from expunge.worker.cli import main;"
        f"result = CliRunner().invoke(main, [{command!r}, '--config', {str(config)!r}], catch_exceptions=False);"
        f"print(result.exit_code, sorted({{m.split('.')[0] for m in sys.modules}} & {heavy!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


@pytest.mark.parametrize("command", every_command(), ids=" ".join)
def test_every_command_takes_config_and_shows_an_example(command) -> None:
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert "--config FILE" in result.stdout
    assert f"expunge {' '.join(command)}" in result.stdout.split("Usage:")[1].split("\n", 1)[1]


@pytest.mark.parametrize("command", [("check",), ("migrate",), ("cases",), ("up",), ("outbox",), ("receipts",)])
def test_config_stands_before_the_command_or_after_it(command, tmp_path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("lease_seconds = 0")
    for arguments in (["--config", str(path), *command], [*command, "--config", str(path)]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 1
        assert "lease_seconds: must be greater than 0" in result.output


@pytest.mark.parametrize(
    "arguments", [["no-such-command"], ["up", "--no-such-option"], ["up", "--timeout", "-1"], ["check", "too", "much"]]
)
def test_wrong_usage_is_exit_code_2(arguments) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage:" in result.stderr


def test_an_error_is_one_line_on_standard_error(tmp_path) -> None:
    result = CliRunner().invoke(main, ["cases", "--config", str(tmp_path / "missing.toml")])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == f"Error: {tmp_path}/missing.toml: there is no such file\n"


def test_the_version_is_told() -> None:
    assert re.fullmatch(r"\S+ \d+\.\d+\.\d+\n", invoke("--version").stdout)


def test_migrate_says_what_it_did(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "are version" in invoke("migrate").stdout
    assert "up to date" in invoke("migrate").stdout
    assert invoke("migrate", "--json").stdout.startswith('{"version": "')
