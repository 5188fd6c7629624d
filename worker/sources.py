"""Reads the settings: the file, then the environment over it. Every wrong field is reported at once, by its dotted
name; values are never repeated, since any of them may hold a password."""

import json
import os
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from expunge.models.errors import ConfigurationError
from expunge.models.tables import MAX_ACCOUNT
from expunge.models.targets import is_account
from expunge.tasks.erasers.contract import AccountOptions
from expunge.tasks.erasers.registry import UnknownStore, eraser_class
from expunge.worker.complaints import must, suggestion
from expunge.worker.graph_settings import read_graphs
from expunge.worker.settings import ENV_PREFIX, TABLES, Settings

DEFAULT_FILE = "expunge.toml"
FILE_VARIABLE = "EXPUNGE_CONFIG"
_ACCOUNT_PREFIX = "EXPUNGE_ACCOUNTS__"
_LIST_LIKE = (list, tuple, set, frozenset, dict)


def load_settings(path: str | os.PathLike[str] | None = None) -> Settings:
    """The settings of this process: `path`, else EXPUNGE_CONFIG, else ./expunge.toml if there is one.

    Raises ConfigurationError, naming every wrong field and what to do.
    """
    named = path or os.environ.get(FILE_VARIABLE) or None
    where = Path(named or DEFAULT_FILE)
    values = _read(where, must_exist=named is not None)
    origin = str(where) if values is not None else "settings"
    values = values or {}
    problems: list[str] = []

    tables = values.pop("accounts", {})
    accounts = _accounts(tables, problems)
    graphs = read_graphs(values.pop("graphs", {}), problems)
    problems += _unknown_variables(values, tables)
    settings: Settings | None = None
    try:
        settings = Settings(**values, accounts=accounts, graphs=graphs)
    except ValidationError as error:
        problems += _explain(error, Settings, "", _set_by_environment)
    if problems or settings is None:
        raise ConfigurationError(f"{origin}: " + "; ".join(problems))
    return settings


def _read(where: Path, *, must_exist: bool) -> dict[str, Any] | None:
    try:
        return tomllib.loads(where.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if must_exist:
            raise ConfigurationError(f"{where}: there is no such file") from None
        return None
    except OSError as error:
        raise ConfigurationError(f"{where}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{where}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{where}: is not TOML: {error}") from None


def _accounts(tables: object, problems: list[str]) -> dict[str, AccountOptions]:
    """Every account by its own store's options; what is wrong goes to `problems`."""
    if not isinstance(tables, dict):
        problems.append("accounts: must be tables: [accounts.NAME]")
        return {}
    overrides = _account_variables(tables, problems)
    accounts = {}
    for name, table in tables.items():
        dotted = f"accounts.{name}"
        if not is_account(name):
            problems.append(
                f"{dotted}: an account's name is a lower-case letter, then lower-case letters, digits or underscores; "
                f"at most {MAX_ACCOUNT}"
            )
        elif not isinstance(table, dict):
            problems.append(f"{dotted}: must be a table: [accounts.{name}]")
        else:
            options = _account(dotted, table, overrides.get(name, {}), problems)
            if options is not None:
                accounts[name] = options
    if len(accounts) == len(tables):  # what is wrong by itself comes first: others may only follow from it
        for name, options in accounts.items():
            problems += [f"accounts.{name}.{each}" for each in options.complaints(name, accounts)]
    return accounts


def _account(
    dotted: str, table: Mapping[str, Any], overrides: Mapping[str, str], problems: list[str]
) -> AccountOptions | None:
    store = overrides.get("store", table.get("store"))
    if not isinstance(store, str):
        problems.append(f'{dotted}.store: is missing: say which store it is, as in store = "s3"')
        return None
    try:
        eraser = eraser_class(store)
    except UnknownStore as error:
        problems.append(f"{dotted}.store: {error}")
        return None
    model = eraser.options
    values = dict(table)
    for key, text in overrides.items():
        try:
            values[key] = _decoded(model, key, text)
        except ValueError:
            problems.append(f'{dotted}.{key}: {_variable(dotted, key)} must be JSON, as in ["one", "two"]')
            values.pop(key, None)
    try:
        options = model.model_validate(values)
    except ValidationError as error:
        problems.extend(_explain(error, model, dotted + ".", lambda key: key in overrides))
        return None
    kinds = [kind.name for kind in eraser.kinds]
    strange = sorted(options.purge_windows.keys() - set(kinds))
    problems += [
        f"{dotted}.purge_windows.{kind}: {store} has no such kind; it has {', '.join(kinds)}" for kind in strange
    ]
    return None if strange else options


def _variable(dotted: str, key: str) -> str:
    return ENV_PREFIX + f"{dotted}.{key}".replace(".", "__").upper()


def _decoded(model: type[BaseModel], key: str, text: str) -> Any:
    field = model.model_fields.get(key)
    if field is None or not _is_list_like(field.annotation):
        return text
    return json.loads(text)


def _is_list_like(annotation: Any) -> bool:
    if annotation in _LIST_LIKE or typing.get_origin(annotation) in _LIST_LIKE:
        return True
    return any(_is_list_like(inner) for inner in typing.get_args(annotation) if inner is not annotation)


def _account_variables(tables: Mapping[str, Any], problems: list[str]) -> dict[str, dict[str, str]]:
    """EXPUNGE_ACCOUNTS__NAME__OPTION, by name and option; an empty one counts as not set."""
    found: dict[str, dict[str, str]] = {}
    for variable, text in os.environ.items():
        if not variable.upper().startswith(_ACCOUNT_PREFIX):
            continue
        name, _, option = variable[len(_ACCOUNT_PREFIX) :].lower().partition("__")
        if not option or name not in tables:
            problems.append(
                f"{variable}: the file has no account {name!r}; add [accounts.{name}] or unset the variable"
                if option
                else f"{variable}: name an option of the account: {_ACCOUNT_PREFIX}NAME__OPTION"
            )
        elif text:
            found.setdefault(name, {})[option] = text
    return found


def _unknown_variables(values: Mapping[str, Any], accounts: object) -> list[str]:
    """Complaints about EXPUNGE_… variables that nothing reads: a misspelt one would silently do nothing."""
    known = {ENV_PREFIX + name.upper() for name in Settings.model_fields if name not in TABLES} | {FILE_VARIABLE}
    # those that hold secrets are named by the settings themselves
    tables = [values, dict(os.environ), *(accounts.values() if isinstance(accounts, dict) else ())]
    named = {
        value
        for table in tables
        if isinstance(table, Mapping)
        for key, value in table.items()
        if isinstance(value, str) and key.lower().endswith("_env")
    }
    return [
        f"{variable}: is not a setting{suggestion(variable.upper(), known)}"
        for variable in os.environ
        if variable.upper().startswith(ENV_PREFIX)
        and not variable.upper().startswith(_ACCOUNT_PREFIX)
        and variable.upper() not in known
        and variable not in named
    ]


def _set_by_environment(key: str) -> bool:
    return any(variable.upper() == ENV_PREFIX + key.upper() and text for variable, text in os.environ.items())


def _explain(
    error: ValidationError, model: type[BaseModel], prefix: str, from_environment: typing.Callable[[str], bool]
) -> list[str]:
    details = error.errors(include_url=False)
    # a list that is short only because of its wrong items
    inside = {detail["loc"][:-1] for detail in details if detail["loc"]}
    return [
        _line(detail, model, prefix, from_environment)
        for detail in details
        if not (detail["type"] == "too_short" and detail["loc"] in inside)
    ]


def _line(
    detail: ErrorDetails, model: type[BaseModel], prefix: str, from_environment: typing.Callable[[str], bool]
) -> str:
    key = ".".join(part for part in detail["loc"] if isinstance(part, str))
    if detail["type"] == "extra_forbidden":
        return f"{prefix}{key}: is not a setting{suggestion(key, model.model_fields)}"
    if detail["type"] == "missing":
        return f"{prefix}{key}: is missing"
    if not key:
        # a rule that spans fields names them itself
        return prefix + must(detail)
    variable = f" ({ENV_PREFIX}{(prefix + key).replace('.', '__').upper()})" if from_environment(key) else ""
    item = "".join(f"item {part + 1} " for part in detail["loc"] if isinstance(part, int))
    return f"{prefix}{key}{variable}: {item}{must(detail)}"
