"""One purge for every kind of store: a database, a store in memory, or one that a host wrote itself.

The capability is optional (ADR 0138). A store of a host's own that never purges needs no method for it, and its purge
says `unsupported`; one that can has `purge_conversation`, and vouches for it that no mutation, old or new, passes its
tombstones: each is checked in the transaction that writes, which is serialized against the purge.
"""

from typing import Any, Protocol, runtime_checkable

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from expunge.models.graph import Graph
from expunge.models.purged import Principal, Purged, PurgeStatus


@runtime_checkable
class PurgesConversations(Protocol):
    """A store that can purge."""

    def purge_conversation(
        self,
        graph: Graph,
        conversation: str,
        *,
        principal: Principal,
        expected_version: Any = None,
        reserve_absent: bool = True,
    ) -> Purged:
        """Remove the conversation for ever, or nothing at all; results and errors are those of `models/purge.py`."""
        ...


def purge_conversation(
    store: object,
    graph: Graph,
    conversation: str,
    *,
    principal: Principal,
    expected_version: Any = None,
    reserve_absent: bool = True,
) -> Purged:
    """Purge a conversation in whatever store this is; `unsupported` if it has no way to.

    In a session or connection the transaction is the caller's, as for `purge`. A store of another kind ends its own.

    Raises what `models/purge.py` raises.
    """
    if isinstance(store, Session | Connection):
        from expunge.models.purge import purge

        return purge(
            store,
            graph,
            conversation,
            principal=principal,
            expected_version=expected_version,
            reserve_absent=reserve_absent,
        )
    if isinstance(store, PurgesConversations) and callable(store.purge_conversation):
        return store.purge_conversation(
            graph, conversation, principal=principal, expected_version=expected_version, reserve_absent=reserve_absent
        )
    return Purged(
        PurgeStatus.UNSUPPORTED, reason=f"a {type(store).__name__} cannot purge: it has no purge_conversation"
    )
