"""Moving tracked objects from the inventory into the outbox of a case, and who has to wait for whom meanwhile.

A row of the inventory is one owner's claim to one object: tenant, subject, conversation. A case ends the claims that it
covers. An object goes into the outbox once no claim of a living owner is left; until then the ended ones stay, with
`left_by` = the case. What was made from an object goes with it, unless a living owner has that by itself.

**`track` and the cases of its subject or conversation exclude each other**, so that none slips between. PostgreSQL: a
shared advisory lock of the transaction in `track`, the exclusive one in the case, from a bounded number of buckets, so
that a bulk writer does not run out of lock memory. What is read after the lock is read by a statement of its own. A
`track` at a stricter isolation than READ COMMITTED still has its older snapshot then; so the case updates the bucket's
row and such a `track` locks it, and the database lets it fail (SQLSTATE 40001) and be repeated. SQLite has one writer,
and both begin with a write.

Two cases that end claims to the same object must see each other as well, or each would leave it to the other. Whatever
shares objects, or derives them across owners, takes one row more, and the same one (`_SHARING`). A case takes its
bucket first, then that, then its case row; a `track` that joins a case the same. So neither waits in a circle.
"""

import zlib
from dataclasses import dataclass

from expunge.models.database import Transaction
from expunge.models.errors import InvalidCase
from expunge.models.second_look import BACK_TO_ERASE

BUCKETS = 1024
"""Of owners. Two owners of one bucket wait for each other's cases, and nothing else happens to them."""
_SHARING = BUCKETS
_ADVISORY_CLASS = 0x65787069

_SAME = "o.account = i.account AND o.kind = i.kind AND o.locator = i.locator"
_DEAD = (
    "({0}.left_by IS NOT NULL OR EXISTS (SELECT 1 FROM erasure_tombstone t"
    " WHERE t.conversation = {0}.conversation AND coalesce(t.tenant, '') = coalesce({0}.tenant, '')))"
)
_LIVES = (
    "EXISTS (SELECT 1 FROM erasure_inventory x WHERE x.account = i.account AND x.kind = i.kind"
    f" AND x.locator = i.locator AND NOT {_DEAD.format('x')})"
)
"""Whether somebody living has the object of row `i`."""
_ENTRY = (
    "EXISTS (SELECT 1 FROM erasure_outbox e WHERE e.case_id = :case AND e.account = i.account AND e.kind = i.kind"
    " AND e.locator = i.locator AND NOT e.settled{0})"
)
_SECOND_LOOK = _ENTRY.replace("NOT e.settled{0}", "e.settled")
"""An entry of the case that only its second look is left of: the object was erased, and is tracked again."""
_STILL_AHEAD = _ENTRY.format(" AND e.state IN ('ready', 'waiting', 'held', 'escalated') AND e.cursor IS NULL")
"""An entry of the case whose next look and call are still to come. One that a worker has in its hands may have been
looked at before the object was made anew: its row stays in the inventory."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose objects a case takes: all of one conversation, or all of one subject."""

    tenant: str | None
    subject: str | None = None
    conversation: str | None = None

    @property
    def bucket(self) -> int:
        """The same in every process and release: cases and `track` of different ones meet in one database."""
        said = ["subject", self.tenant or "", self.subject]
        if self.conversation is not None:
            said = ["conversation", self.tenant or "", self.conversation]
        return zlib.crc32("\0".join(str(part) for part in said).encode()) % BUCKETS

    @property
    def covers(self) -> str:
        """The condition on rows `i`, in a form that the indexes answer."""
        name = "subject" if self.conversation is None else "conversation"
        return f"i.{name} = :{name} AND i.{tenant_is(self.tenant)}"

    @property
    def spares(self) -> str:
        """The opposite, on rows `o`."""
        name = "subject" if self.conversation is None else "conversation"
        return f"(coalesce(o.{name}, '') <> :{name} OR coalesce(o.tenant, '') <> coalesce(i.tenant, ''))"

    @property
    def parameters(self) -> dict[str, str | None]:
        """What both conditions need."""
        tenant = {} if self.tenant is None else {"tenant": self.tenant}
        if self.conversation is not None:
            return {"conversation": self.conversation, **tenant}
        return {"subject": self.subject, **tenant}


@dataclass(frozen=True, slots=True)
class Taken:
    """What went into the outbox, in objects."""

    added: int = 0
    known: int = 0
    """Those that had an entry in this case already."""
    shared: int = 0
    """Those that a living owner has as well, or that were made of what goes and are a living owner's own."""
    accounts: frozenset[str] = frozenset()
    """The lanes of what was added."""


def tenant_is(tenant: str | None) -> str:
    """`tenant` compared with the parameter of that name, in a form that an index answers."""
    return "tenant IS NULL" if tenant is None else "tenant = :tenant"


def share(tx: Transaction, *owners: Owner) -> None:
    """Let no case of these owners begin to take before this transaction ends. Waits for those that have begun."""
    if tx.dialect != "postgresql":
        _write_first(tx)
        return
    buckets = sorted({owner.bucket for owner in owners})
    locks = ", ".join(f"pg_advisory_xact_lock_shared({_ADVISORY_CLASS}, {bucket})" for bucket in buckets)
    row = tx.first(f"SELECT current_setting('transaction_isolation') AS isolation, {locks}")
    if row is not None and row.isolation != "read committed":
        for bucket in buckets:
            tx.run("INSERT INTO erasure_inventory_bucket (bucket) VALUES (:b) ON CONFLICT DO NOTHING", b=bucket)
            tx.first("SELECT bucket FROM erasure_inventory_bucket WHERE bucket = :b FOR SHARE", b=bucket)


def exclude(tx: Transaction, owner: Owner) -> None:
    """Let nobody track for this owner before this transaction ends. Waits for those that have.

    Raises InvalidCase on PostgreSQL at another isolation than READ COMMITTED: what was tracked since the transaction's
    snapshot would be left behind unseen.
    """
    if tx.dialect != "postgresql":
        _write_first(tx)
    else:
        row = tx.first("SELECT current_setting('transaction_isolation') AS isolation")
        if row is not None and row.isolation != "read committed":
            raise InvalidCase(
                f"inventory: a transaction at {row.isolation.upper()} cannot see what was tracked since it began;"
                " open the case at READ COMMITTED"
            )
        tx.first(f"SELECT pg_advisory_xact_lock({_ADVISORY_CLASS}, {owner.bucket})")
        _touch(tx, owner.bucket)
    shares = f"SELECT 1 FROM erasure_inventory o WHERE {_SAME} AND {owner.spares}"
    derives = f"SELECT 1 FROM erasure_inventory o WHERE o.derived_from = i.id AND {owner.spares}"
    if tx.first(
        f"SELECT 1 FROM erasure_inventory i WHERE {owner.covers} AND (EXISTS ({shares}) OR EXISTS ({derives})) LIMIT 1",
        **owner.parameters,
    ):
        exclude_sharing(tx)


def exclude_sharing(tx: Transaction) -> None:
    """Let nobody else decide about shared objects before this transaction ends."""
    if tx.dialect == "postgresql":
        _touch(tx, _SHARING)


def has_tracked(tx: Transaction, owner: Owner) -> bool:
    """Whether a case of this owner would find anything."""
    found = tx.first(f"SELECT 1 FROM erasure_inventory i WHERE {owner.covers} LIMIT 1", **owner.parameters)
    return found is not None


def take_all(tx: Transaction, case_id: str, owner: Owner) -> Taken:
    """Everything of this owner goes into the case's outbox; `exclude` comes before, and the case exists."""
    return _take(tx, case_id, owner.covers, owner.parameters)


def take_one(tx: Transaction, case_id: str, item_id: int) -> Taken:
    """One row goes into the case's outbox; `share` and `exclude_sharing` come before, and the case exists."""
    return _take(tx, case_id, "i.id = :id", {"id": item_id})


def _take(tx: Transaction, case_id: str, covered: str, parameters: dict[str, str | None] | dict[str, int]) -> Taken:
    ended = tx.run(
        f"UPDATE erasure_inventory SET left_by = :case WHERE id IN (SELECT i.id FROM erasure_inventory i"
        f" WHERE {covered})",
        case=case_id,
        **parameters,
    )
    if not ended:
        return Taken()
    _end_with_them(tx, case_id)
    shared = _count_shared(tx, case_id)
    if shared:  # mostly known before, but somebody may have tracked one of them since
        exclude_sharing(tx)
        _end_with_them(tx, case_id)
        shared = _count_shared(tx, case_id)
    goes = f"i.left_by = :case AND NOT {_LIVES}"
    found = tx.rows(
        "SELECT account, count(*) AS n, sum(CASE WHEN entered THEN 1 ELSE 0 END) AS known FROM (SELECT DISTINCT"
        f" i.account, i.kind, i.locator, {_ENTRY.format('')} AS entered FROM erasure_inventory i WHERE {goes})"
        " AS ending GROUP BY account",
        case=case_id,
    )
    # one that a worker's look has in its hands is left to the next case, as any other entry is
    back = tx.run(
        f"UPDATE erasure_outbox SET {BACK_TO_ERASE} WHERE settled AND id IN (SELECT e.id FROM erasure_outbox e"
        " WHERE e.case_id = :case AND e.settled AND e.state = 'ready' AND EXISTS (SELECT 1 FROM erasure_inventory i"
        " WHERE e.account = i.account AND e.kind = i.kind AND e.locator = i.locator"
        f" AND {goes}) {{skip locked}})",
        case=case_id,
    )
    # an entry that is seen is not inserted again, and so not waited for: its settle may wait for this case's row
    added = tx.run(
        "INSERT INTO erasure_outbox (case_id, account, kind, locator, conversation, expires_at)"
        " SELECT CAST(:case AS text), i.account, i.kind, i.locator, min(i.conversation), min(i.expires_at)"
        f" FROM erasure_inventory i WHERE {goes} AND NOT {_ENTRY.format('')}"
        f" AND NOT {_SECOND_LOOK}"
        " GROUP BY i.account, i.kind, i.locator"
        " ON CONFLICT (case_id, account, kind, locator) DO NOTHING",
        case=case_id,
    )
    tx.run(
        "DELETE FROM erasure_inventory WHERE id IN (SELECT i.id FROM erasure_inventory i"
        f" WHERE {goes} AND {_STILL_AHEAD})",
        case=case_id,
    )
    # what a worker has in its hands just now lives on, and is taken next time
    tx.run(
        f"UPDATE erasure_inventory SET left_by = NULL WHERE id IN (SELECT i.id FROM erasure_inventory i WHERE {goes})",
        case=case_id,
    )
    accounts = frozenset(row.account for row in found if row.known < row.n)
    added += back
    return Taken(added, sum(row.n for row in found) - added, shared, accounts)


def _end_with_them(tx: Transaction, case_id: str) -> None:
    """Until nothing more ends with what has ended."""
    while _end_others(tx, case_id) + _end_derived(tx, case_id):
        pass


def _end_others(tx: Transaction, case_id: str) -> int:
    """What others had and gave up goes with the object."""
    return tx.run(
        "UPDATE erasure_inventory SET left_by = :case WHERE id IN (SELECT i.id FROM erasure_inventory o"
        f" JOIN erasure_inventory i ON {_SAME} WHERE o.left_by = :case AND coalesce(i.left_by, '') <> :case"
        f" AND NOT {_LIVES})",
        case=case_id,
    )


def _end_derived(tx: Transaction, case_id: str) -> int:
    """What was made from an object that goes, unless it is a living conversation's or another subject's own."""
    return tx.run(
        "UPDATE erasure_inventory SET left_by = :case WHERE id IN (SELECT d.id FROM erasure_inventory i"
        " JOIN erasure_inventory d ON d.derived_from = i.id WHERE i.left_by = :case"
        f" AND coalesce(d.left_by, '') <> :case AND ({_DEAD.format('d')} OR d.conversation IS NULL"
        " AND d.subject = i.subject AND coalesce(d.tenant, '') = coalesce(i.tenant, ''))"
        f" AND NOT {_LIVES})",
        case=case_id,
    )


def _count_shared(tx: Transaction, case_id: str) -> int:
    row = tx.first(
        "SELECT count(*) AS n FROM ("
        f"SELECT i.account, i.kind, i.locator FROM erasure_inventory i WHERE i.left_by = :case AND {_LIVES}"
        " UNION SELECT d.account, d.kind, d.locator FROM erasure_inventory i"
        " JOIN erasure_inventory d ON d.derived_from = i.id"
        f" WHERE i.left_by = :case AND NOT {_LIVES} AND NOT {_DEAD.format('d')}) AS both_kinds",
        case=case_id,
    )
    return 0 if row is None else int(row.n)


def _touch(tx: Transaction, bucket: int) -> None:
    tx.run(
        "INSERT INTO erasure_inventory_bucket AS b (bucket, cases) VALUES (:bucket, 1)"
        " ON CONFLICT (bucket) DO UPDATE SET cases = b.cases + 1",
        bucket=bucket,
    )


def _write_first(tx: Transaction) -> None:
    """SQLite takes its one write lock, whether or not there is such a row; after a read it might not get it."""
    tx.run("UPDATE erasure_inventory SET left_by = left_by WHERE id = 0")
