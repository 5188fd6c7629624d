"""The wheel and the sdist as users get them."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _copied_by_the_image() -> list[str]:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    build = lines[: [number for number, line in enumerate(lines) if line.startswith("FROM ")][1]]
    return [source for line in build if line.startswith("COPY ") for source in line.split()[1:-1]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both, built as the image does it: from nothing but what it copies."""
    folder = tmp_path_factory.mktemp("build")
    source, out = folder / "source", folder / "dist"
    source.mkdir()
    for name in _copied_by_the_image():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)],
        check=True,
        capture_output=True,
    )
    return out


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel in a folder of its own; its dependencies are those of this environment."""
    (wheel,) = built.glob("*.whl")
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel],
        check=True,
    )
    return folder


def _on_disk() -> set[str]:
    """What a package must bring: code, the mark that it is typed, and the template of migrations."""
    wanted = ("*.py", "py.typed", "*.mako")
    return {
        f"expunge/{path.relative_to(ROOT)}"
        for folder in ("models", "tasks", "worker")
        for pattern in wanted
        for path in (ROOT / folder).rglob(pattern)
    }


def test_the_wheel_has_all_of_it_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == _on_disk()
    assert {"expunge/models/migrations/script.py.mako", "expunge/models/py.typed"} <= names


def test_the_sdist_has_all_of_it(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.removeprefix("expunge/") for name in _on_disk()} | {"pyproject.toml", "README.md"} <= names


def test_the_wheel_works_where_it_is_installed(installed, tmp_path):
    """Its tables can be made, and its command is found, without the repository."""
    program = (
        "import sys, expunge.models, expunge.models.schema\n"
        "from expunge.worker.cli import main\n"
        "print(expunge.models.schema.__file__)\n"
        "main(['migrate'])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", _only(installed) + program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    where, said = ran.stdout.strip().splitlines()
    assert where.startswith(str(installed))
    assert said.startswith("The tables are version ")


def test_its_commands_and_entry_points_are_declared(installed):
    (points,) = installed.glob("expunge-*.dist-info/entry_points.txt")
    text = points.read_text()
    assert "expunge = expunge.worker.start:main" in text
    assert "[expunge.bell]" in text
    assert os.access(installed / "bin" / "expunge", os.X_OK)


def _only(installed: Path) -> str:
    """Takes an editable installation's import hook out of the way."""
    return (
        "import sys\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]\n"
        f"sys.path[:0] = [{str(installed)!r}]\n"
    )
