"""The fence: triggers on the root and every member, so that no writer, old or new, brings a purged conversation back.

    graph_live.py     what hangs together how, in this database
    fence_reach.py    which conversations a row belongs to, in the words of SQL
    fence_climb.py    what its parents know of that, as one query
    fence_postgresql.py, fence_sqlite.py   the statements
    fence.py          installing and checking them; the purge's side of the lock
    fence_restored.py conversations that have a tombstone and rows

An INSERT or UPDATE is refused if the row belongs to a purged conversation before or after it, or if a parent that it
names is not there; reading and deleting go on. All is additive, and safe to run again.
"""

import hashlib
import weakref
from collections.abc import Mapping

from sqlalchemy import text
from sqlalchemy.engine import Connection

from expunge.models import fence_postgresql, fence_sqlite
from expunge.models.errors import SOMEBODY_WRITES, ConfigurationError, ConversationBusy, SchemaError
from expunge.models.fence_names import trigger_name
from expunge.models.fence_postgresql import LOCK_CLASS
from expunge.models.fence_reach import Reach, literal, quote
from expunge.models.graph_live import LiveGraph

WAIT_SECONDS = 5.0
"""For the writers near a conversation that is to be purged. While a purge waits, no new one is let in."""
_INSTALL_KEY = 0x65787067
_fingerprints: dict[int, dict[tuple[str, str], str]] = {}
"""By the identity of the graph as it was read, and by dialect and schema."""
_HINT = "run expunge fence install"


def fence_sql(live: LiveGraph, dialect: str, *, schema: str = "public", lock: bool = True) -> list[str]:
    """The statements that build the fence, each safe to run again; best in one transaction. `schema` is the one of
    Expunge's tables and of every table that is named without one (PostgreSQL).

    Without `lock`, for tests only, PostgreSQL's writers take no lock: rows of a purged conversation can come back then.
    """
    if dialect == "postgresql":
        mark = fingerprint(live, dialect, schema)
        found = list(fence_postgresql.statements(Reach(live, schema), lock=lock))
        place, now = f"{quote(schema)}.erasure_fence", "statement_timestamp()"
    else:
        mark = fingerprint(live, dialect)
        found = list(fence_sqlite.statements(Reach(live)))
        place, now = "erasure_fence", "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
    values = f"{literal(live.graph.name)}, {literal(mark)}"
    return [
        *found,
        f"INSERT INTO {place} (graph, fingerprint) VALUES ({values}) ON CONFLICT (graph) DO UPDATE"
        f" SET fingerprint = excluded.fingerprint, installed_at = {now}",
    ]


def fingerprint(live: LiveGraph, dialect: str, schema: str = "public") -> str:
    """Which fence belongs to the graph as it is: a hash of its statements, which every purge asks for and which take
    milliseconds to write; so it is kept as long as the graph is."""
    known = _fingerprints.get(id(live))
    if known is None:
        weakref.finalize(live, _fingerprints.pop, id(live), None)
        known = _fingerprints[id(live)] = {}
    if (dialect, schema) not in known:
        known[dialect, schema] = _fingerprint(live, dialect, schema)
    return known[dialect, schema]


def _fingerprint(live: LiveGraph, dialect: str, schema: str) -> str:
    if dialect == "postgresql":
        statements = list(fence_postgresql.statements(Reach(live, schema), lock=True))
    else:
        statements = list(fence_sqlite.statements(Reach(live)))
    return hashlib.sha256("\0".join(statements).encode()).hexdigest()


def statements_for(connection: Connection, live: LiveGraph, dialect: str | None = None) -> list[str]:
    """`fence_sql` for the schema that the connection works in, and its own dialect."""
    schema = _schema(connection) if connection.dialect.name == "postgresql" else "public"
    return fence_sql(live, dialect or connection.dialect.name, schema=schema)


def install(connection: Connection, live: LiveGraph) -> bool:
    """Build the fence in the caller's transaction, or build it anew if it is not the graph's; whether there was
    anything to do. If it stands, no table is locked; else PostgreSQL waits for the writers of each table, and they for
    it.

    Raises SchemaError without Expunge's tables.
    """
    postgresql = connection.dialect.name == "postgresql"
    if postgresql:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_INSTALL_KEY})")
    if not check(connection, live):
        return False
    for statement in statements_for(connection, live):
        connection.exec_driver_sql(statement.replace("%", "%%") if postgresql else statement)
    return True


def check(connection: Connection, live: LiveGraph) -> list[str]:
    """What is wrong with the fence, a line each; [] if it stands. What `why_open` sees, and on PostgreSQL the bodies of
    its functions as well, which their owner can replace."""
    problems = _problems(connection, live)
    if connection.dialect.name == "postgresql" and not problems:
        problems += _changed_functions(connection, live)
    return problems


def why_open(connection: Connection, live: LiveGraph) -> str | None:
    """None if the fence stands and belongs to this graph as it is now, else the reason; two short statements."""
    problems = _problems(connection, live)
    return "; ".join(problems[:3]) if problems else None


def close_for_purge(
    connection: Connection, graph_name: str, conversation: str, *, wait_seconds: float = WAIT_SECONDS
) -> None:
    """Let no writer near the conversation until the transaction ends. The first thing a purge does, before any row.

    PostgreSQL: takes the exclusive lock of the conversation's bucket, and updates the bucket's row for writers whose
    snapshot is older. It waits for writers that are under way, at most `wait_seconds`, and only if the transaction has
    written nothing yet, so that nobody can be waiting for it in turn. One that has written something holds locks: of
    two such transactions each could be waiting for the other, so it tries once, and waits for nobody. SQLite: its write
    lock is enough.

    Raises ConversationBusy (roll back and try again), ConfigurationError at another isolation level than READ
    COMMITTED, where a purge would miss rows that it cannot see, or SchemaError without the fence's buckets.
    """
    if connection.dialect.name != "postgresql":
        return
    level = str(connection.exec_driver_sql("SHOW transaction_isolation").scalar_one())
    if level != "read committed":
        raise ConfigurationError(f"a purge needs READ COMMITTED, this transaction is at {level.upper()}")
    schema = quote(_schema(connection))
    bucket = connection.execute(
        text(f"SELECT {_escaped(schema)}.erasure_fence_bucket_of(:graph, :conversation)"),
        {"graph": graph_name, "conversation": conversation},
    ).scalar_one()
    if not connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({LOCK_CLASS}, {bucket})").scalar_one():
        _wait(connection, bucket, wait_seconds)
    closed = connection.execute(
        text(f"UPDATE {_escaped(schema)}.erasure_fence_bucket SET purges = purges + 1 WHERE bucket = :bucket"),
        {"bucket": bucket},
    )
    if closed.rowcount != 1:
        raise SchemaError(f"the fence has lost its buckets: {_HINT}")


def _escaped(name: str) -> str:
    return name.replace(":", r"\:")


def _wait(connection: Connection, bucket: int, seconds: float) -> None:
    held = connection.exec_driver_sql("SELECT pg_current_xact_id_if_assigned() IS NOT NULL").scalar_one()
    if held or seconds <= 0:
        raise ConversationBusy(SOMEBODY_WRITES)
    before = connection.exec_driver_sql("SELECT current_setting('lock_timeout')").scalar_one()
    limit = text("SELECT set_config('lock_timeout', :limit, true)")
    connection.execute(limit, {"limit": f"{max(1, int(seconds * 1000))}ms"})
    try:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK_CLASS}, {bucket})")
    except Exception as error:
        if getattr(getattr(error, "orig", None), "sqlstate", None) == "55P03":
            raise ConversationBusy(SOMEBODY_WRITES) from error
        raise
    connection.execute(limit, {"limit": before})


def _schema(connection: Connection) -> str:
    if connection.dialect.name != "postgresql":
        return "main"
    found = connection.exec_driver_sql("SELECT current_schema()").scalar_one()
    if found is None:
        raise SchemaError("the connection's search_path names no schema that is there")
    return str(found)


def _problems(connection: Connection, live: LiveGraph) -> list[str]:
    postgresql = connection.dialect.name == "postgresql"
    schema = _schema(connection)
    mark = connection.execute(
        text("SELECT fingerprint FROM erasure_fence WHERE graph = :graph"), {"graph": live.graph.name}
    ).scalar()
    if mark is None:
        return [f"graph {live.graph.name} has no fence: {_HINT}"]
    if mark != fingerprint(live, connection.dialect.name, schema):
        return [f"the fence of graph {live.graph.name} is older than the graph: {_HINT}"]
    there = _triggers_postgresql(connection) if postgresql else _triggers_sqlite(connection)
    problems = []
    for table in live.tables:
        for when in ("",) if postgresql else ("insert", "update"):
            name = trigger_name(live.graph.name, table, when)
            state = there.get((_place(table, schema) if postgresql else table, name))
            if state is None:
                problems.append(f"{table}: the trigger {name} is gone: {_HINT}")
            elif state != "A":
                problems.append(f"{table}: the trigger {name} is not enabled ALWAYS: {_HINT}")
    return problems


def _place(table: str, schema: str) -> str:
    before, dot, _ = table.rpartition(".")
    return table if dot and before else f"{schema}.{table}"


def _triggers_postgresql(connection: Connection) -> Mapping[tuple[str, str], str]:
    rows = connection.exec_driver_sql(
        "SELECT n.nspname || '.' || c.relname, t.tgname, t.tgenabled FROM pg_trigger t JOIN pg_class c"
        " ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE starts_with(t.tgname, 'zz_erasure_fence_')"
    )
    return {(table, name): state if isinstance(state, str) else state.decode() for table, name, state in rows}


def _triggers_sqlite(connection: Connection) -> Mapping[tuple[str, str], str]:
    rows = connection.exec_driver_sql(
        "SELECT tbl_name, name FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'zz_erasure_fence_*'"
    )
    return dict.fromkeys(((table, name) for table, name in rows), "A")


def _changed_functions(connection: Connection, live: LiveGraph) -> list[str]:
    schema = _schema(connection)
    wanted = fence_postgresql.function_bodies(Reach(live, schema))
    rows = connection.execute(
        text(
            "SELECT p.proname, p.prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = :schema AND p.proname = ANY(:names)"
        ),
        {"schema": schema, "names": list(wanted)},
    )
    found = {str(name): str(body) for name, body in rows}
    return [
        f"the function {name} is not the fence's own: {_HINT}" for name in wanted if found.get(name) != wanted[name]
    ]
