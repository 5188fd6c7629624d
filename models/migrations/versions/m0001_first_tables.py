"""The first tables: cases, outbox, receipts, lanes, drains, holds, notices, decisions."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from expunge.models.migrations.triggers import create_triggers, drop_triggers
from expunge.models.types import Identity, Json, UtcDateTime, Uuid

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _defaults() -> tuple[sa.TextClause, sa.TextClause]:
    """(now, random id) in this database's words."""
    if op.get_bind().dialect.name == "postgresql":
        return sa.text("clock_timestamp()"), sa.text("gen_random_uuid()")
    return sa.text("(strftime('%Y-%m-%d %H:%M:%f000', 'now'))"), sa.text("(lower(hex(randomblob(16))))")


def _bytes(column: str) -> str:
    if op.get_bind().dialect.name == "postgresql":
        return f"octet_length({column})"
    return f"length(CAST({column} AS BLOB))"


def _time_checks(*columns: str) -> list[sa.CheckConstraint]:
    """SQLite takes any text for a time; only what sorts as a time may be stored."""
    if op.get_bind().dialect.name == "postgresql":
        return []
    digits = "[0-9][0-9]"
    pattern = f"{digits}{digits}-{digits}-{digits} {digits}:{digits}:{digits}*"
    return [sa.CheckConstraint(f"{c} IS NULL OR {c} GLOB '{pattern}'", name=f"{c}_format") for c in columns]


def _column(name: str, type_: Any, **options: Any) -> sa.Column[Any]:
    options.setdefault("nullable", False)
    return sa.Column(name, type_, **options)


def upgrade() -> None:
    now, random_id = _defaults()
    zero, no, empty = sa.text("0"), sa.false(), sa.text("''")
    text, integer, boolean, moment = sa.Text(), sa.Integer(), sa.Boolean(), UtcDateTime()

    op.create_table(
        "erasure_case",
        _column("id", text, primary_key=True, server_default=random_id),
        _column("tenant", text, nullable=True),
        _column("subject", text),
        _column("scope", text, server_default="targets"),
        _column("conversation", text, nullable=True),
        _column("basis", text, server_default="request"),
        _column("received_at", moment, server_default=now),
        _column("due_at", moment, nullable=True),
        _column("opened_at", moment, server_default=now),
        _column("completed_at", moment, nullable=True),
        _column("nothing_found", boolean, server_default=no),
        sa.CheckConstraint("length(id) BETWEEN 1 AND 200", name="id_length"),
        sa.CheckConstraint("subject <> ''", name="subject"),
        sa.CheckConstraint("scope IN ('targets', 'conversation', 'subject')", name="scope"),
        sa.CheckConstraint("basis IN ('request', 'gdpr', 'uk_gdpr', 'ccpa')", name="basis"),
        *_time_checks("received_at", "due_at", "opened_at", "completed_at"),
    )
    op.create_index("ix_erasure_case_tenant_subject", "erasure_case", ["tenant", "subject"])
    op.create_index("ix_erasure_case_opened_at_id", "erasure_case", ["opened_at", "id"])
    _partial_index("ix_erasure_case_open", "erasure_case", ["due_at"], "completed_at IS NULL")

    op.create_table(
        "erasure_outbox",
        _column("id", Identity, primary_key=True, autoincrement=True),
        _column("case_id", text),
        _column("account", text),
        _column("kind", text),
        _column("locator", text),
        _column("parent_id", Identity, nullable=True),
        _column("state", text, server_default="ready"),
        _column("due_at", moment, server_default=now),
        _column("attempt", integer, server_default=zero),
        _column("tries", integer, server_default=zero),
        _column("refusals", integer, server_default=zero),
        _column("lost_leases", integer, server_default=zero),
        _column("escalations", integer, server_default=zero),
        _column("rounds", integer, server_default=zero),
        _column("had_parts", boolean, server_default=no),
        _column("cursor", text, nullable=True),
        _column("lease_token", Uuid, nullable=True),
        _column("lease_until", moment, nullable=True),
        _column("reason", text, nullable=True),
        _column("created_at", moment, server_default=now),
        sa.ForeignKeyConstraint(["case_id"], ["erasure_case.id"], name="fk_erasure_outbox_case_id_erasure_case"),
        sa.UniqueConstraint(
            "case_id", "account", "kind", "locator", name="uq_erasure_outbox_case_id_account_kind_locator"
        ),
        sa.CheckConstraint(
            "state IN ('ready', 'leased', 'calling', 'waiting', 'held', 'escalated')",
            name="state",
        ),
        sa.CheckConstraint(
            "(state IN ('leased', 'calling')) = (lease_token IS NOT NULL)"
            " AND (lease_token IS NULL) = (lease_until IS NULL)",
            name="lease",
        ),
        sa.CheckConstraint("state <> 'calling' OR attempt > 0", name="calling_was_marked"),
        sa.CheckConstraint("state <> 'escalated' OR reason IS NOT NULL", name="escalated_has_reason"),
        sa.CheckConstraint(
            "attempt >= 0 AND tries >= 0 AND refusals >= 0 AND lost_leases >= 0 AND escalations >= 0 AND rounds >= 0",
            name="counts",
        ),
        sa.CheckConstraint(f"{_bytes('locator')} BETWEEN 1 AND 1100", name="locator_length"),
        sa.CheckConstraint("length(account) BETWEEN 1 AND 64", name="account_length"),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name="kind_length"),
        sa.CheckConstraint("parent_id IS NULL OR parent_id <> id", name="not_its_own_parent"),
        *_time_checks("due_at", "lease_until", "created_at"),
        sqlite_autoincrement=True,
    )
    _partial_index("ix_erasure_outbox_ready", "erasure_outbox", ["account", "due_at", "id"], "state = 'ready'")
    _partial_index("ix_erasure_outbox_lease", "erasure_outbox", ["lease_until"], "lease_until IS NOT NULL")
    _partial_index("ix_erasure_outbox_parent_id", "erasure_outbox", ["parent_id"], "parent_id IS NOT NULL")
    _partial_index(
        "ix_erasure_outbox_parked",
        "erasure_outbox",
        ["state", "due_at"],
        "state IN ('waiting', 'held', 'escalated')",
    )

    op.create_table(
        "erasure_record",
        _column("id", Uuid, primary_key=True),
        _column("case_id", text),
        _column("entry_id", Identity, nullable=True),
        _column("tenant", text, nullable=True),
        _column("subject", text),
        _column("conversation", text, nullable=True),
        _column("account", text),
        _column("store", text, nullable=True),
        _column("kind", text),
        _column("locator", text),
        _column("version", text, nullable=True),
        _column("attempt", integer),
        _column("action", text),
        _column("operation", text, nullable=True),
        _column("status", text),
        _column("request_id", text, nullable=True),
        _column("http_status", integer, nullable=True),
        _column("error", text, nullable=True),
        _column("detail", Json, nullable=True),
        _column("endpoint", text, nullable=True),
        _column("region", text, nullable=True),
        _column("called_at", moment, nullable=True),
        _column("at", moment),
        _column("recorded_at", moment, server_default=now),
        _column("purge_due_at", moment, nullable=True),
        _column("actor", text, nullable=True),
        _column("why", text, nullable=True),
        sa.CheckConstraint("action IN ('delete', 'look', 'verify', 'decision')", name="action"),
        sa.CheckConstraint(
            "status IN ('deleted', 'already_absent', 'failed', 'unknown', 'retained', 'waived')", name="status"
        ),
        sa.CheckConstraint("(status = 'waived') = (action = 'decision')", name="waived_by_decision"),
        sa.CheckConstraint(
            "action <> 'decision' OR (actor IS NOT NULL AND why IS NOT NULL)", name="decision_has_actor"
        ),
        sa.CheckConstraint("status NOT IN ('failed', 'unknown') OR error IS NOT NULL", name="failure_has_error"),
        *_time_checks("called_at", "at", "recorded_at", "purge_due_at"),
    )
    op.create_index("ix_erasure_record_case_id", "erasure_record", ["case_id"])
    op.create_index("ix_erasure_record_recorded_at_id", "erasure_record", ["recorded_at", "id"])
    op.create_index("ix_erasure_record_tenant_subject", "erasure_record", ["tenant", "subject"])

    op.create_table(
        "erasure_lane",
        _column("account", text, primary_key=True),
        _column("scope", text, primary_key=True, server_default=empty),
        _column("paused_by", text, nullable=True),
        _column("paused_until", moment, nullable=True),
        _column("paused_since", moment, nullable=True),
        _column("reason", text, nullable=True),
        _column("refused", boolean, server_default=no),
        _column("failures", integer, server_default=zero),
        _column("failing", Json, nullable=True),
        sa.CheckConstraint("paused_by IN ('operator', 'throttle', 'breaker')", name="paused_by"),
        sa.CheckConstraint("failures >= 0", name="failures"),
        sa.CheckConstraint("paused_by IS NULL OR paused_since IS NOT NULL", name="pause_has_start"),
        sa.CheckConstraint(
            "paused_by IS NULL OR paused_by = 'operator' OR paused_until IS NOT NULL", name="pause_has_end"
        ),
        *_time_checks("paused_until", "paused_since"),
    )
    op.create_table(
        "erasure_drain",
        _column("account", text, primary_key=True),
        _column("slot", integer, primary_key=True, autoincrement=False),
        _column("token", Uuid),
        _column("lease_until", moment),
        *_time_checks("lease_until"),
    )
    op.create_table(
        "erasure_hold",
        _column("id", Identity, primary_key=True, autoincrement=True),
        _column("tenant", text, nullable=True),
        _column("subject", text, nullable=True),
        _column("conversation", text, nullable=True),
        _column("matter", text, nullable=True),
        _column("placed_at", moment, server_default=now),
        _column("placed_by", text),
        _column("placed_why", text),
        _column("released_at", moment, nullable=True),
        _column("released_by", text, nullable=True),
        _column("released_why", text, nullable=True),
        sa.CheckConstraint("subject IS NOT NULL OR conversation IS NOT NULL", name="covers_something"),
        sa.CheckConstraint(
            "(released_at IS NULL) = (released_by IS NULL) AND (released_at IS NULL) = (released_why IS NULL)",
            name="release_is_signed",
        ),
        *_time_checks("placed_at", "released_at"),
        sqlite_autoincrement=True,
    )
    _partial_index("ix_erasure_hold_standing", "erasure_hold", ["subject"], "released_at IS NULL")
    op.create_table(
        "erasure_notice",
        _column("id", Identity, primary_key=True, autoincrement=True),
        _column("kind", text),
        _column("dedupe", text),
        _column("case_id", text, nullable=True),
        _column("entry_id", Identity, nullable=True),
        _column("account", text, nullable=True),
        _column("body", Json),
        _column("created_at", moment, server_default=now),
        _column("due_at", moment, server_default=now),
        _column("attempt", integer, server_default=zero),
        _column("sent_at", moment, nullable=True),
        sa.UniqueConstraint("dedupe", name="uq_erasure_notice_dedupe"),
        *_time_checks("created_at", "due_at", "sent_at"),
        sqlite_autoincrement=True,
    )
    _partial_index("ix_erasure_notice_owed", "erasure_notice", ["due_at"], "sent_at IS NULL")
    op.create_table(
        "erasure_decision",
        _column("id", Identity, primary_key=True, autoincrement=True),
        _column("at", moment, server_default=now),
        _column("decision", text),
        _column("actor", text),
        _column("why", text, nullable=True),
        _column("account", text, nullable=True),
        _column("case_id", text, nullable=True),
        _column("entry_id", Identity, nullable=True),
        _column("hold_id", Identity, nullable=True),
        sa.CheckConstraint("decision IN ('retry', 'waive', 'pause', 'resume', 'hold', 'release')", name="decision"),
        sa.CheckConstraint("actor <> ''", name="actor"),
        *_time_checks("at"),
        sqlite_autoincrement=True,
    )
    create_triggers(op.get_bind())


def _partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))


def downgrade() -> None:
    bind = op.get_bind()
    for kept in ("erasure_record", "erasure_decision"):
        if bind.execute(sa.text(f"SELECT 1 FROM {kept} LIMIT 1")).first():
            raise RuntimeError(f"{kept} holds evidence: export it and drop the table by hand if that is really meant")
    drop_triggers(bind)
    for table in (
        "erasure_decision",
        "erasure_notice",
        "erasure_hold",
        "erasure_drain",
        "erasure_lane",
        "erasure_record",
        "erasure_outbox",
        "erasure_case",
    ):
        op.drop_table(table)
