"""Everything that README.md shows is run: its settings, its code, and its sessions with the output that it prints."""

import os
import re
import shlex
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from expunge.models.database import Database
from expunge.models.session_schema import create_sessions
from expunge.models.sessions import SESSIONS
from expunge.tasks.erasers.openai import OpenAIOptions
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.webhook import sign
from expunge.worker.cli import COMMANDS
from expunge.worker.demo_provider import DEMO_KEY
from expunge.worker.demo_stores import demo_stores
from expunge.worker.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = ("docs/ARCHITECTURE.md", "docs/LIMITS.md", "docs/RUNBOOK.md")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CHANGES = (
    (re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\dZ)?"), "DATE"),
    (
        re.compile(
            r"\d{1,2} (January|February|March|April|May|June|July|August|September|October|November|December) \d+"
        ),
        "DATE",
    ),
    (re.compile(r"(127\.0\.0\.1):\d+"), r"\1:PORT"),
)
"""What is another one in every run."""


def _blocks(language: str) -> list[str]:
    return [text for found, text in _BLOCK.findall(README) if found == language]


def _stable(text: str) -> str:
    for pattern, word in _CHANGES:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _sessions() -> list[tuple[str, str]]:
    """Each command with the output that is shown after it."""
    sessions: list[tuple[str, str]] = []
    for block in _blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            sessions.append((command, output))
    return sessions


def _environment() -> dict[str, str]:
    """Ours without what the machine may say; `expunge` and `python` are this environment's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "OPENAI_", "EXPUNGE_"))}
    return {**kept, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"}


class Host:
    """A folder with the settings as they stand in the README; only the stores' addresses are those of this machine."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self._environment = folder, environment

    def run(self, command: str) -> str:
        ran = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def sql(self, script: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(self.folder / "app.db")
        try:
            if script.lstrip().startswith("SELECT"):
                return connection.execute(script).fetchall()
            connection.executescript(script)
            connection.commit()
            return []
        finally:
            connection.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    settings = "\n".join(_blocks("toml"))
    (tmp_path / "expunge.toml").write_text(settings)
    with demo_stores() as stores:
        yield Host(
            tmp_path,
            {
                **_environment(),
                "AWS_ACCESS_KEY_ID": "demo",
                "AWS_SECRET_ACCESS_KEY": "demo",
                "OPENAI_API_KEY": DEMO_KEY,
                "NO_PROXY": "127.0.0.1",
                "EXPUNGE_ACCOUNTS__ARTIFACTS__ENDPOINT_URL": stores.s3_url,
                "EXPUNGE_ACCOUNTS__OPENAI_EU__BASE_URL": stores.provider.base_url,
            },
        )


def test_every_block_is_known():
    """A new one must be run as well."""
    assert {language: len(_blocks(language)) for language, _ in _BLOCK.findall(README)} == {
        "console": 2,
        "python": 3,
        "sql": 1,
        "sh": 3,
        "toml": 2,
    }


def test_the_host_the_worker_and_the_sessions(host):
    host.run("expunge migrate")
    host.sql("CREATE TABLE conversation (id TEXT); INSERT INTO conversation VALUES ('c-7'), ('c-8')")
    (host.folder / "host.py").write_text(_blocks("python")[0])
    host.run("python -W error host.py")
    assert host.sql("SELECT id FROM conversation") == [("c-8",)]
    host.sql(_blocks("sql")[0])
    shown = _sessions()[1:]
    assert [command for command, _ in shown] == ["expunge up --until-idle", "expunge cases"]
    for command, output in shown:
        assert _stable(host.run(command)) == _stable(output)


def test_the_demos_session(tmp_path):
    command, output = _sessions()[0]
    ran = Host(tmp_path, _environment()).run(command)
    assert _stable(ran) == _stable(output)
    assert len(output.splitlines()) < 30


def test_the_purge_as_it_says(sqlite_url):
    database = Database.open(sqlite_url)
    create_sessions(database)
    engine = database.engine
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO session (id, tenant_id, principal_id, version) VALUES ('c-7', 'acme', 'u-88213', 12)"
        )
    exec(_blocks("python")[1], {"engine": engine, "SESSIONS": SESSIONS})
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT id FROM session").all() == []
    database.close()


def test_the_signature_is_checked_as_it_says():
    names: dict[str, object] = {}
    exec(_blocks("python")[2], names)
    is_genuine = names["is_genuine"]
    assert callable(is_genuine)
    now, body = int(time.time()), b'{"kind":"entry.escalated"}'
    assert is_genuine(sign("secret", body, now), body, "secret")
    assert not is_genuine(sign("other", body, now), body, "secret")
    assert not is_genuine(sign("secret", body, now), body + b" ", "secret")
    assert not is_genuine(sign("secret", body, now - 3600), body, "secret")


def test_the_fleets_commands_are_the_procfiles():
    processes = [line.partition(": ")[2] for line in (ROOT / "Procfile").read_text().splitlines()]
    assert _blocks("sh")[1].splitlines() == processes


def test_the_host_to_read_is_started_as_it_says(host):
    *prepare, last = _blocks("sh")[2].splitlines()
    shown = [host.run(line) for line in prepare]
    assert re.fullmatch(r"expunge_[0-9a-f]{16}_\S{43}\n", shown[-1])
    assert last == "expunge serve --port 8080"
    command = shlex.split(last.replace("8080", "0"))
    with subprocess.Popen(command, cwd=host.folder, env=_environment(), stderr=subprocess.PIPE, text=True) as process:
        assert any(line.startswith("Listening on http://127.0.0.1:") for line in process.stderr or [])
        process.terminate()
    assert process.returncode == 0


def test_the_install_names_an_extra_that_exists():
    assert shlex.split(_blocks("sh")[0]) == ["python", "-m", "pip", "install", ".[demo]"]
    assert "demo" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_every_command_is_listed():
    section = README.partition("## Commands")[2].partition("## ")[0]
    assert set(re.findall(r"`expunge (\w+)`", section)) == set(COMMANDS)


def test_every_setting_is_named_with_its_default():
    section = README.partition("## Settings")[2].partition("## ")[0]
    options = {*Settings.model_fields, *S3Options.model_fields, *OpenAIOptions.model_fields}
    assert [name for name in options if name not in section] == []
    for names, defaults in re.findall(r"^\| (`[a-z_`, ]+`) \| ([\d, ]+) \|", section, flags=re.MULTILINE):
        for name, default in zip(re.findall(r"\w+", names), re.findall(r"\d+", defaults), strict=True):
            # a number may stand for a list of one
            assert Settings.model_fields[name].default in (float(default), (float(default),))


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *DOCUMENTS])
def test_links_lead_somewhere(document):
    text = (ROOT / document).read_text()
    local = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    assert [link for link in local if not ((ROOT / document).parent / link).exists()] == []


def test_there_are_few_badges():
    assert README.count("![") <= 3
