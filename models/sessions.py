"""The reference host's tables, and how a conversation of it hangs together.

A MetaData of its own: `expunge migrate --with-sessions` creates them (session_schema.py), and nothing else does. Ids
are text that the host chooses. Every other column that need not be said has a default of the database's, so that plain
SQL from any language works. Foreign keys are where one would have them; `event.run_id`, `recall_trace.session_id`,
`memory.formed_session_id` and `consolidation.source_session_id` have none and are declared in the graph instead.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from expunge.models.graph import ActiveRun, Graph, Member, Reference, Root, Rule, TargetColumns
from expunge.models.tables import NAMING
from expunge.models.types import SQLITE_TIME, Identity, UtcDateTime

ACTIVE_STATES = ("queued", "running", "waiting")
"""Of a run that somebody works on."""
TERMINAL_STATES = ("succeeded", "failed", "cancelled")
"""Of a run that is over."""
MESSAGE_TYPES = ("message", "user_message")
"""Types of events whose payload may be what the user said (session_title.py)."""

metadata = sa.MetaData(naming_convention=NAMING)


class DatabaseNow(FunctionElement[Any]):
    """The database's clock as a column's default."""

    type = UtcDateTime()
    inherit_cache = True


class RandomId(FunctionElement[Any]):
    """A random id, as text, as a column's default."""

    type = sa.Text()
    inherit_cache = True


@compiles(DatabaseNow, "postgresql")
def _now_postgresql(element: DatabaseNow, compiler: Any, **_: Any) -> str:
    return "statement_timestamp()"  # one moment for all columns of a row, as SQLite has it


@compiles(DatabaseNow, "sqlite")
def _now_sqlite(element: DatabaseNow, compiler: Any, **_: Any) -> str:
    return f"strftime('{SQLITE_TIME}000', 'now')"


@compiles(RandomId, "postgresql")
def _id_postgresql(element: RandomId, compiler: Any, **_: Any) -> str:
    return "CAST(gen_random_uuid() AS text)"


@compiles(RandomId, "sqlite")
def _id_sqlite(element: RandomId, compiler: Any, **_: Any) -> str:
    return "lower(hex(randomblob(16)))"


def _id() -> sa.Column[str]:
    return sa.Column("id", sa.Text(), primary_key=True, server_default=RandomId())


def _text(name: str, *, nullable: bool = True, default: str | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable, server_default=default)


def _when(name: str = "created_at") -> sa.Column[Any]:
    return sa.Column(name, UtcDateTime(), nullable=False, server_default=DatabaseNow())


_TIME = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9]*"


def _sortable(name: str) -> sa.CheckConstraint:
    """SQLite takes any text for a time; only what sorts as a time may be stored."""
    check = sa.CheckConstraint(f"{name} GLOB '{_TIME}'", name=f"{name}_format")
    return check.ddl_if(dialect="sqlite")


def _to(name: str, target: str, *, nullable: bool = False) -> sa.Column[str]:
    """A reference with a foreign key, and an index: a purge finds rows by it."""
    return sa.Column(name, sa.Text(), sa.ForeignKey(target), nullable=nullable, index=True)


def _one_of(column: str, values: tuple[str, ...]) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} IN ({', '.join(repr(value) for value in values)})", name=column)


session = sa.Table(
    "session",
    metadata,
    _id(),
    _text("tenant_id", nullable=False),
    _text("principal_id", nullable=False),
    _text("title"),
    sa.Column("version", sa.BigInteger(), nullable=False, server_default=sa.text("1")),
    _when(),
    _when("updated_at"),
    sa.CheckConstraint("length(id) BETWEEN 1 AND 200", name="id_length"),
    _sortable("updated_at"),
    sa.Index("ix_session_activity", "tenant_id", "principal_id", "updated_at", "id"),
)
"""A conversation. Every event that is appended raises `version` by one and advances `updated_at` (a trigger)."""

run = sa.Table(
    "run",
    metadata,
    _id(),
    _to("session_id", "session.id"),
    _to("parent_run_id", "run.id", nullable=True),
    _text("state", nullable=False, default="queued"),
    _when(),
    _one_of("state", ACTIVE_STATES + TERMINAL_STATES),
)
"""One piece of work of an agent; `parent_run_id` is the run that started it."""

event = sa.Table(
    "event",
    metadata,
    sa.Column("position", Identity, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text(), nullable=False, unique=True, server_default=RandomId()),
    sa.Column("session_id", sa.Text(), sa.ForeignKey("session.id"), nullable=False),
    sa.Column("run_id", sa.Text(), index=True),
    _text("type", nullable=False, default="message"),
    _text("payload", nullable=False, default="{}"),
    _when(),
    sa.Index("ix_event_session_id_position", "session_id", "position"),
    sa.Index(
        "ix_event_message",
        "session_id",
        "position",
        postgresql_where=sa.text(f"type IN {MESSAGE_TYPES!r}"),
        sqlite_where=sa.text(f"type IN {MESSAGE_TYPES!r}"),
    ),
    sqlite_autoincrement=True,
)
"""What happened, in the order of `position`. `payload` is JSON as text, kept byte for byte as it was appended."""

checkpoint = sa.Table(
    "checkpoint", metadata, _id(), _to("run_id", "run.id"), _text("state", nullable=False, default="{}"), _when()
)
"""Where a run can go on."""

projection = sa.Table(
    "projection",
    metadata,
    _id(),
    _to("session_id", "session.id"),
    _text("name", nullable=False, default=""),
    _text("state", nullable=False, default="{}"),
    _when(),
)
"""What readers see, computed from events."""

tool_invocation = sa.Table(
    "tool_invocation",
    metadata,
    _id(),
    _to("run_id", "run.id"),
    _text("tool", nullable=False, default=""),
    _text("arguments", nullable=False, default="{}"),
    _text("result"),
    _when(),
)
"""One call of a tool."""

approval = sa.Table(
    "approval",
    metadata,
    _id(),
    _to("tool_invocation_id", "tool_invocation.id"),
    _text("decision"),
    _when(),
)
"""What a person decided about a call, before it was made."""

artifact = sa.Table(
    "artifact",
    metadata,
    _id(),
    _to("session_id", "session.id"),
    _to("run_id", "run.id", nullable=True),
    _text("account"),
    _text("kind"),
    _text("locator"),
    _when(),
)
"""Bytes of the conversation that are at a store: an erasure target."""

memory = sa.Table(
    "memory",
    metadata,
    _id(),
    _to("source_session_id", "session.id", nullable=True),
    sa.Column("formed_session_id", sa.Text(), index=True),
    _text("text", nullable=False, default=""),
    _when(),
)
"""What is remembered: said in one session, formed in another or the same."""

memory_rejection = sa.Table(
    "memory_rejection",
    metadata,
    _id(),
    _to("session_id", "session.id", nullable=True),
    _to("memory_id", "memory.id", nullable=True),
    _text("text", nullable=False, default=""),
    _when(),
)
"""What the user said must not be remembered."""

recall_trace = sa.Table(
    "recall_trace",
    metadata,
    _id(),
    sa.Column("session_id", sa.Text(), nullable=False, index=True),
    _to("memory_id", "memory.id", nullable=True),
    _text("query", nullable=False, default=""),
    _when(),
)
"""Which memory was recalled in a session, and for what."""

consolidation = sa.Table(
    "consolidation",
    metadata,
    _id(),
    sa.Column("source_session_id", sa.Text(), index=True),
    _to("memory_id", "memory.id", nullable=True),
    _text("text", nullable=False, default=""),
    _when(),
)
"""What was made of a session's memories."""

knowledge_document = sa.Table(
    "knowledge_document",
    metadata,
    _id(),
    _to("artifact_id", "artifact.id", nullable=True),
    _text("text", nullable=False, default=""),
    _text("account"),
    _text("kind"),
    _text("locator"),
    _when(),
)
"""A document of the knowledge base; made from an artifact, it belongs to that one's conversation. A provider's index of
it is an erasure target."""

skill_revision = sa.Table(
    "skill_revision",
    metadata,
    _id(),
    _to("authoring_run_id", "run.id", nullable=True),
    _text("body", nullable=False, default=""),
    _when(),
)
"""A published skill: it outlives the conversation whose run wrote it."""

session_token = sa.Table(
    "session_token",
    metadata,
    sa.Column("id", sa.Text(), primary_key=True),
    sa.Column("secret_sha256", sa.Text(), nullable=False),
    _text("tenant_id", nullable=False),
    _text("principal_id", nullable=False),
    _text("scopes", nullable=False),
    _when(),
    sa.Column("expires_at", UtcDateTime()),
    sa.Column("revoked_at", UtcDateTime()),
    sa.CheckConstraint("length(secret_sha256) = 64", name="secret_sha256"),
)
"""A bearer token. Only the SHA-256 of its random secret is kept; `scopes` are separated by spaces."""

_AT_STORE = (TargetColumns("account", "kind", "locator"),)

SESSIONS = Graph(
    name="sessions",
    root=Root(
        table="session",
        tenant="tenant_id",
        owner="principal_id",
        version="version",
        active_run=ActiveRun("run", ACTIVE_STATES),
    ),
    members=(
        Member("run"),
        Member("event", references=(Reference("run_id", "run"),)),
        Member("checkpoint"),
        Member("projection"),
        Member("tool_invocation"),
        Member("approval"),
        Member("artifact", targets=_AT_STORE),
        Member("memory", references=(Reference("formed_session_id", "session"),)),
        Member("memory_rejection"),
        Member("recall_trace", references=(Reference("session_id", "session"),)),
        Member("consolidation", references=(Reference("source_session_id", "session"),)),
        Member("knowledge_document", targets=_AT_STORE),
        Member("skill_revision", rule=Rule.DETACH),
    ),
)
"""A conversation of the reference host."""
