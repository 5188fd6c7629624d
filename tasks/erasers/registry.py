"""Finds the erasers: the modules of this package that name an `ERASER`, and the entry points of other packages."""

import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType

from expunge.models.targets import ERASER_GROUP, register_kind
from expunge.tasks import erasers
from expunge.tasks.erasers.contract import AccountOptions, Eraser


class UnknownStore(LookupError):
    """No installed eraser has this name."""


@cache
def all_erasers() -> MappingProxyType[str, type[Eraser]]:
    """Every eraser by its store's name. Raises ValueError when two claim one name, or a kind has no shape."""
    found: dict[str, type[Eraser]] = {}
    for module in pkgutil.iter_modules(erasers.__path__, erasers.__name__ + "."):
        _add(found, getattr(import_module(module.name), "ERASER", None))
    for point in entry_points(group=ERASER_GROUP):
        _add(found, point.load())
    return MappingProxyType(found)


def _add(found: dict[str, type[Eraser]], eraser: type[Eraser] | None) -> None:
    if eraser is None:
        return
    known = found.setdefault(eraser.store, eraser)
    if known is not eraser:
        raise ValueError(f"two erasers are named {eraser.store!r}: {known.__module__} and {eraser.__module__}")
    if not eraser.kinds:
        raise ValueError(f"{eraser.__module__}: an eraser must name its kinds")
    for kind in eraser.kinds:
        register_kind(kind)


def eraser_class(store: str) -> type[Eraser]:
    """The eraser of a store. Raises UnknownStore with the names there are."""
    try:
        return all_erasers()[store]
    except KeyError:
        raise UnknownStore(f"store {store!r} is not known; known are {', '.join(sorted(all_erasers()))}") from None


def make_eraser(account: str, options: AccountOptions, *, lease_seconds: float) -> Eraser:
    """The eraser of one account; clients are built on first use."""
    return eraser_class(options.store)(account, options, lease_seconds=lease_seconds)
