"""What is installed is what is on disk; folders depend on each other one way; nothing has two names."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("models", "tasks", "worker")
BELOW = {
    "models": ("expunge.tasks", "expunge.worker", "celery", "kombu", "click", "rich"),
    "tasks": ("expunge.worker", "click", "rich"),
    "worker": (),
}
"""What a folder must not import."""
SQL = {"text", "select", "insert", "update", "delete", "sql"}
LONGEST = 400
"""Lines of a module: above, it is two."""


def _modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


ALL = [path for folder in FOLDERS for path in _modules(folder)]


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("expunge", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every imported module, wherever in the file, with how many dots it begins with."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, 0
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.level


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_package_on_disk_is_declared():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    on_disk = {_name(path) for path in ALL if path.name == "__init__.py"}
    assert sorted(declared) == sorted(on_disk)
    assert {path.parent for path in ALL} == {path.parent for path in ALL if path.name == "__init__.py"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_is_typed(folder):
    assert (ROOT / folder / "py.typed").exists()


@pytest.mark.parametrize("path", ALL, ids=_id)
def test_folders_depend_one_way(path):
    folder = path.relative_to(ROOT).parts[0]
    wrong = [name for name, _ in _imports(path) for package in BELOW[folder] if _is_within(name, package)]
    assert wrong == []


@pytest.mark.parametrize("path", ALL, ids=_id)
def test_imports_are_absolute_and_by_the_installed_name(path):
    relative = [name for name, level in _imports(path) if level]
    bare = [name for name, _ in _imports(path) if name.split(".")[0] in FOLDERS]
    assert (relative, bare) == ([], [])


@pytest.mark.parametrize("path", [*_modules("tasks"), *_modules("worker")], ids=_id)
def test_sql_is_written_in_models_only(path):
    """Nothing that builds a statement is imported, and no text that looks like one is written."""
    tree = ast.parse(path.read_text())
    built = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sqlalchemy"
        for alias in node.names
        if alias.name in SQL
    ]
    called = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in SQL
        and isinstance(node.value, ast.Name)
        and node.value.id in ("sa", "sqlalchemy")
    ]
    written = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and "erasure_" in node.value.split("\n")[0]
        and node.value.lstrip().split(" ")[0].upper() in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
    ]
    assert (built, called, written) == ([], [], [])


@pytest.mark.parametrize("path", ALL, ids=_id)
def test_no_module_is_long(path):
    assert len(path.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("path", ALL, ids=_id)
def test_names_say_what_a_module_is_about(path):
    assert path.stem not in ("utils", "util", "helpers", "common", "misc")


def test_nothing_is_imported_under_a_second_name():
    """In a process of its own, from the repository's folder, where the bare names could be found."""
    names = [_name(path) for path in ALL if _name(path) not in ("expunge.worker.app", "expunge.models.migrations.env")]
    program = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print([name for name in sys.modules if name.split('.')[0] in {FOLDERS!r}])"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "[]"), ran.stderr


def test_celery_loads_the_app_from_any_folder(tmp_path, monkeypatch):
    config = tmp_path / "settings.toml"
    config.write_text('database_url = "sqlite:///x.db"\nbroker_url = "redis://127.0.0.1:1/0"\n')
    monkeypatch.setenv("EXPUNGE_CONFIG", str(config))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ran = subprocess.run(
        [str(Path(sys.executable).parent / "celery"), "-A", "expunge.worker.app", "report"],
        cwd=elsewhere,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "worker_pool: 'threads'" in ran.stdout
    assert list(elsewhere.iterdir()) == []
