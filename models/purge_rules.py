"""Who may purge a conversation, and in which version: the same for a database and a store in memory."""

from typing import Any

from expunge.models.errors import InvalidGraph, VersionConflict
from expunge.models.graph import Graph, Root
from expunge.models.purged import Principal


def may(root: Root, tenant: object, owner: object, principal: Principal) -> bool:
    """Whether a row, or tombstone, of this tenant and owner is the principal's. A host that declares no tenant column
    has one tenant, and where no owner is declared every principal of the tenant may."""
    if root.tenant is not None and (tenant is None or str(tenant) != principal.tenant):
        return False
    return root.owner is None or (owner is not None and str(owner) == principal.id)


def require_version_column(graph: Graph, expected: Any) -> None:
    """Raises InvalidGraph if a version is expected of a root that has none."""
    if expected is not None and graph.root.version is None:
        raise InvalidGraph([f"graph {graph.name}: expected_version needs a version column of the root"])


def require_version(found: Any, expected: Any) -> None:
    """Raises VersionConflict unless it is the expected one, as it is or as text; None expects nothing."""
    if expected is not None and found != expected and str(found) != str(expected):
        raise VersionConflict("the conversation is not at the expected version: read it again")
