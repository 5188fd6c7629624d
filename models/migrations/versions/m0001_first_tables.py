"""The first tables: cases, outbox, receipts, lanes, drains, holds, notices, decisions."""

import sqlalchemy as sa
from alembic import op

from expunge.models.migrations.columns import byte_length, column, defaults, partial_index, time_checks
from expunge.models.migrations.triggers import create_triggers, drop_triggers
from expunge.models.types import Identity, Json, UtcDateTime, Uuid

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    now, random_id = defaults()
    zero, no, empty = sa.text("0"), sa.false(), sa.text("''")
    text, integer, boolean, moment = sa.Text(), sa.Integer(), sa.Boolean(), UtcDateTime()

    op.create_table(
        "erasure_case",
        column("id", text, primary_key=True, server_default=random_id),
        column("tenant", text, nullable=True),
        column("subject", text),
        column("scope", text, server_default="targets"),
        column("conversation", text, nullable=True),
        column("basis", text, server_default="request"),
        column("received_at", moment, server_default=now),
        column("due_at", moment, nullable=True),
        column("opened_at", moment, server_default=now),
        column("completed_at", moment, nullable=True),
        column("nothing_found", boolean, server_default=no),
        sa.CheckConstraint("length(id) BETWEEN 1 AND 200", name="id_length"),
        sa.CheckConstraint("subject <> ''", name="subject"),
        sa.CheckConstraint("scope IN ('targets', 'conversation', 'subject')", name="scope"),
        sa.CheckConstraint("basis IN ('request', 'gdpr', 'uk_gdpr', 'ccpa')", name="basis"),
        *time_checks("received_at", "due_at", "opened_at", "completed_at"),
    )
    op.create_index("ix_erasure_case_tenant_subject", "erasure_case", ["tenant", "subject"])
    op.create_index("ix_erasure_case_opened_at_id", "erasure_case", ["opened_at", "id"])
    partial_index("ix_erasure_case_open", "erasure_case", ["due_at"], "completed_at IS NULL")

    op.create_table(
        "erasure_outbox",
        column("id", Identity, primary_key=True, autoincrement=True),
        column("case_id", text),
        column("account", text),
        column("kind", text),
        column("locator", text),
        column("parent_id", Identity, nullable=True),
        column("state", text, server_default="ready"),
        column("due_at", moment, server_default=now),
        column("attempt", integer, server_default=zero),
        column("tries", integer, server_default=zero),
        column("refusals", integer, server_default=zero),
        column("lost_leases", integer, server_default=zero),
        column("escalations", integer, server_default=zero),
        column("rounds", integer, server_default=zero),
        column("had_parts", boolean, server_default=no),
        column("cursor", text, nullable=True),
        column("lease_token", Uuid, nullable=True),
        column("lease_until", moment, nullable=True),
        column("reason", text, nullable=True),
        column("created_at", moment, server_default=now),
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
        sa.CheckConstraint(f"{byte_length('locator')} BETWEEN 1 AND 1100", name="locator_length"),
        sa.CheckConstraint("length(account) BETWEEN 1 AND 64", name="account_length"),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name="kind_length"),
        sa.CheckConstraint("parent_id IS NULL OR parent_id <> id", name="not_its_own_parent"),
        *time_checks("due_at", "lease_until", "created_at"),
        sqlite_autoincrement=True,
    )
    partial_index("ix_erasure_outbox_ready", "erasure_outbox", ["account", "due_at", "id"], "state = 'ready'")
    partial_index("ix_erasure_outbox_lease", "erasure_outbox", ["lease_until"], "lease_until IS NOT NULL")
    partial_index("ix_erasure_outbox_parent_id", "erasure_outbox", ["parent_id"], "parent_id IS NOT NULL")
    partial_index(
        "ix_erasure_outbox_parked",
        "erasure_outbox",
        ["state", "due_at"],
        "state IN ('waiting', 'held', 'escalated')",
    )

    op.create_table(
        "erasure_record",
        column("id", Uuid, primary_key=True),
        column("case_id", text),
        column("entry_id", Identity, nullable=True),
        column("tenant", text, nullable=True),
        column("subject", text),
        column("conversation", text, nullable=True),
        column("account", text),
        column("store", text, nullable=True),
        column("kind", text),
        column("locator", text),
        column("version", text, nullable=True),
        column("attempt", integer),
        column("action", text),
        column("operation", text, nullable=True),
        column("status", text),
        column("request_id", text, nullable=True),
        column("http_status", integer, nullable=True),
        column("error", text, nullable=True),
        column("detail", Json, nullable=True),
        column("endpoint", text, nullable=True),
        column("region", text, nullable=True),
        column("called_at", moment, nullable=True),
        column("at", moment),
        column("recorded_at", moment, server_default=now),
        column("purge_due_at", moment, nullable=True),
        column("actor", text, nullable=True),
        column("why", text, nullable=True),
        sa.CheckConstraint("action IN ('delete', 'look', 'verify', 'decision')", name="action"),
        sa.CheckConstraint(
            "status IN ('deleted', 'already_absent', 'failed', 'unknown', 'retained', 'waived')", name="status"
        ),
        sa.CheckConstraint("(status = 'waived') = (action = 'decision')", name="waived_by_decision"),
        sa.CheckConstraint(
            "action <> 'decision' OR (actor IS NOT NULL AND why IS NOT NULL)", name="decision_has_actor"
        ),
        sa.CheckConstraint("status NOT IN ('failed', 'unknown') OR error IS NOT NULL", name="failure_has_error"),
        *time_checks("called_at", "at", "recorded_at", "purge_due_at"),
    )
    op.create_index("ix_erasure_record_case_id", "erasure_record", ["case_id"])
    op.create_index("ix_erasure_record_recorded_at_id", "erasure_record", ["recorded_at", "id"])
    op.create_index("ix_erasure_record_tenant_subject", "erasure_record", ["tenant", "subject"])

    op.create_table(
        "erasure_lane",
        column("account", text, primary_key=True),
        column("scope", text, primary_key=True, server_default=empty),
        column("paused_by", text, nullable=True),
        column("paused_until", moment, nullable=True),
        column("paused_since", moment, nullable=True),
        column("reason", text, nullable=True),
        column("refused", boolean, server_default=no),
        column("failures", integer, server_default=zero),
        column("failing", Json, nullable=True),
        sa.CheckConstraint("paused_by IN ('operator', 'throttle', 'breaker')", name="paused_by"),
        sa.CheckConstraint("failures >= 0", name="failures"),
        sa.CheckConstraint("paused_by IS NULL OR paused_since IS NOT NULL", name="pause_has_start"),
        sa.CheckConstraint(
            "paused_by IS NULL OR paused_by = 'operator' OR paused_until IS NOT NULL", name="pause_has_end"
        ),
        *time_checks("paused_until", "paused_since"),
    )
    op.create_table(
        "erasure_drain",
        column("account", text, primary_key=True),
        column("slot", integer, primary_key=True, autoincrement=False),
        column("token", Uuid),
        column("lease_until", moment),
        *time_checks("lease_until"),
    )
    op.create_table(
        "erasure_hold",
        column("id", Identity, primary_key=True, autoincrement=True),
        column("tenant", text, nullable=True),
        column("subject", text, nullable=True),
        column("conversation", text, nullable=True),
        column("matter", text, nullable=True),
        column("placed_at", moment, server_default=now),
        column("placed_by", text),
        column("placed_why", text),
        column("released_at", moment, nullable=True),
        column("released_by", text, nullable=True),
        column("released_why", text, nullable=True),
        sa.CheckConstraint("subject IS NOT NULL OR conversation IS NOT NULL", name="covers_something"),
        sa.CheckConstraint(
            "(released_at IS NULL) = (released_by IS NULL) AND (released_at IS NULL) = (released_why IS NULL)",
            name="release_is_signed",
        ),
        *time_checks("placed_at", "released_at"),
        sqlite_autoincrement=True,
    )
    partial_index("ix_erasure_hold_standing", "erasure_hold", ["subject"], "released_at IS NULL")
    op.create_table(
        "erasure_notice",
        column("id", Identity, primary_key=True, autoincrement=True),
        column("kind", text),
        column("dedupe", text),
        column("case_id", text, nullable=True),
        column("entry_id", Identity, nullable=True),
        column("account", text, nullable=True),
        column("body", Json),
        column("created_at", moment, server_default=now),
        column("due_at", moment, server_default=now),
        column("attempt", integer, server_default=zero),
        column("sent_at", moment, nullable=True),
        sa.UniqueConstraint("dedupe", name="uq_erasure_notice_dedupe"),
        *time_checks("created_at", "due_at", "sent_at"),
        sqlite_autoincrement=True,
    )
    partial_index("ix_erasure_notice_owed", "erasure_notice", ["due_at"], "sent_at IS NULL")
    op.create_table(
        "erasure_decision",
        column("id", Identity, primary_key=True, autoincrement=True),
        column("at", moment, server_default=now),
        column("decision", text),
        column("actor", text),
        column("why", text, nullable=True),
        column("account", text, nullable=True),
        column("case_id", text, nullable=True),
        column("entry_id", Identity, nullable=True),
        column("hold_id", Identity, nullable=True),
        sa.CheckConstraint("decision IN ('retry', 'waive', 'pause', 'resume', 'hold', 'release')", name="decision"),
        sa.CheckConstraint("actor <> ''", name="actor"),
        *time_checks("at"),
        sqlite_autoincrement=True,
    )
    create_triggers(op.get_bind())


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
