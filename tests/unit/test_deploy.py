"""The Procfile, and what deploy/ makes of it: one command each, in four places."""

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from expunge.worker.celery_app import OneRuntime, make_app
from expunge.worker.settings import Settings
from expunge.worker.sources import load_settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = {
    "release": "expunge-migrate.service",
    "worker": "expunge-worker@.service",
    "beat": "expunge-beat.service",
}
SERVICES = {"release": "migrate", "worker": "worker", "beat": "beat"}
BIN = "/opt/expunge/bin/"
POOL_OPTIONS = {"-P", "--pool", "-c", "--concurrency", "--prefetch-multiplier"}
COMPILERS = re.compile(r"\b(apt-get|apt|apk|gcc|g\+\+|clang|build-essential|make|cargo)\b")


def _procfile() -> dict[str, list[str]]:
    lines = (ROOT / "Procfile").read_text().splitlines()
    return {name: shlex.split(command) for name, command in (line.split(":", 1) for line in lines if line.strip())}


def _compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


def _unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "systemd" / name).read_text())
    return parser


def _dockerfile() -> list[tuple[str, str]]:
    """Instructions with their arguments, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def _stages() -> list[list[tuple[str, str]]]:
    stages: list[list[tuple[str, str]]] = []
    for instruction in _dockerfile():
        if instruction[0] == "FROM":
            stages.append([])
        stages[-1].append(instruction)
    return stages


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_procfile_has_release_worker_and_beat():
    assert _procfile().keys() == {"release", "worker", "beat"}


@pytest.mark.parametrize("process", ["worker", "beat"])
def test_celery_is_told_the_app_and_leaves_pool_and_prefetch_to_it(process):
    command = _procfile()[process]
    assert command[:4] == ["celery", "-A", "expunge.worker.app", process]
    assert not {word.split("=")[0] for word in command} & POOL_OPTIONS


def test_the_apps_own_configuration_says_threads_and_prefetch_1():
    settings = Settings(broker_url="redis://127.0.0.1:1/0", threads=7)
    app = make_app(settings, OneRuntime(settings))
    assert app.conf.worker_pool == "threads"
    assert app.conf.worker_concurrency == 7
    assert app.conf.worker_prefetch_multiplier == 1


@pytest.mark.parametrize("process", SERVICES)
def test_compose_runs_the_procfiles_commands(process):
    assert _compose()["services"][SERVICES[process]]["command"] == _procfile()[process]


@pytest.mark.parametrize("process", UNITS)
def test_systemd_runs_the_procfiles_commands(process):
    command = shlex.split(_unit(UNITS[process])["Service"]["ExecStart"])
    assert command[0].startswith(BIN)
    assert [command[0].removeprefix(BIN), *command[1:]] == _procfile()[process]


def test_the_image_runs_the_procfiles_worker():
    (command,) = [rest for word, rest in _stages()[-1] if word == "CMD"]
    assert json.loads(command) == _procfile()["worker"]


def test_every_unit_has_a_process():
    assert {path.name for path in (DEPLOY / "systemd").iterdir()} == set(UNITS.values())


@pytest.mark.parametrize("process", UNITS)
def test_units_are_hardened(process):
    service = _unit(UNITS[process])["Service"]
    assert service["User"] == "expunge"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert not [value for key, value in service.items() if key.startswith("Environment") and "KEY" in value.upper()]


@pytest.mark.parametrize("process", ["worker", "beat"])
def test_units_come_back_whatever_ended_them(process):
    unit = _unit(UNITS[process])
    assert unit["Service"]["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert UNITS["release"] in unit["Unit"]["After"].split()


def test_a_stop_waits_for_a_look_or_a_call():
    """With the example's lease; a look ends by half of it, and a call and its confirming look by two fifths."""
    lease = tomllib.loads((DEPLOY / "expunge.toml").read_text())["lease_seconds"]
    unit = float(_unit(UNITS["worker"])["Service"]["TimeoutStopSec"])
    compose = float(_compose()["services"]["worker"]["stop_grace_period"].removesuffix("s"))
    assert unit == compose
    assert unit > lease / 2


def test_the_image_is_built_in_two_stages_from_a_wheel():
    build, last = _stages()
    assert any("pip wheel" in rest for word, rest in build if word == "RUN")
    assert build[0][1].split()[0] == last[0][1].split()[0] == "python:3.11-slim"
    copies = [rest for word, rest in last if word == "COPY"]
    assert copies
    assert all(copy.startswith("--from=build ") for copy in copies)
    assert not [rest for word, rest in last if word == "RUN" and COMPILERS.search(rest)]


def test_the_image_does_not_run_as_root():
    users = [rest for word, rest in _stages()[-1] if word == "USER"]
    assert users
    assert int(users[-1]) > 0
    assert any(f"--uid {users[-1]} " in rest for word, rest in _stages()[-1] if word == "RUN")


def copied() -> list[str]:
    """The files and folders that the image's wheel is built of."""
    return [source for word, rest in _stages()[0] if word == "COPY" for source in rest.split()[:-1]]


def test_the_image_copies_what_exists_and_all_packages():
    assert [name for name in copied() if not (ROOT / name).exists()] == []
    assert set(_project()["tool"]["setuptools"]["package-dir"].values()) <= set(copied())
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignore if line.startswith("!")} == set(copied())


def test_the_image_has_the_oldest_python_that_is_supported():
    assert _project()["project"]["requires-python"] == ">=3.11"


def test_compose_migrates_once_before_anything_runs():
    services = _compose()["services"]
    assert services["migrate"]["restart"] == "no"
    assert services["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    for name in ("worker", "beat"):
        assert services[name]["depends_on"] == {
            "migrate": {"condition": "service_completed_successfully"},
            "broker": {"condition": "service_healthy"},
        }
    assert services["worker"]["deploy"]["replicas"] == 2


def test_compose_checks_health():
    services = _compose()["services"]
    assert {name for name, service in services.items() if "healthcheck" in service} == {"db", "broker", "worker"}
    ping = services["worker"]["healthcheck"]["test"][-1].split()
    assert ping[:5] == ["celery", "-A", "expunge.worker.app", "inspect", "ping"]


def test_compose_takes_secrets_from_the_environment_and_the_settings_read_only():
    for name in SERVICES.values():
        service = _compose()["services"][name]
        assert service["volumes"] == ["./expunge.toml:/etc/expunge/expunge.toml:ro"]
        secret = {key: value for key, value in service["environment"].items() if re.search(r"KEY|PASSWORD|URL", key)}
        assert {key for key, value in secret.items() if "${" not in value} <= {"EXPUNGE_BROKER_URL"}
        assert service["read_only"] is True


def test_the_example_settings_are_valid(monkeypatch):
    environment = _compose()["services"]["worker"]["environment"]
    for name, value in environment.items():
        monkeypatch.setenv(name, re.sub(r"\$\{[^}]*\}", "secret", value))
    monkeypatch.setenv("EXPUNGE_CONFIG", str(DEPLOY / "expunge.toml"))
    settings = load_settings()
    assert set(settings.accounts) == {"artifacts", "openai_eu"}
    assert settings.database_url == "postgresql+psycopg://expunge:secret@db/expunge"
    assert not settings.in_memory
