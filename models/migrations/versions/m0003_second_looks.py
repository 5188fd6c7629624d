"""Second looks, wider holds, extended cases; what is known of stores; the archive; when the sweep ran."""

import sqlalchemy as sa
from alembic import op

from expunge.models.migrations.archive import create_archive_triggers, drop_archive_triggers
from expunge.models.migrations.checks import add_check, change_check, drop_check
from expunge.models.migrations.columns import column, defaults, partial_index, time_checks
from expunge.models.migrations.holds import create_hold_triggers, drop_hold_triggers
from expunge.models.migrations.second_looks import create_look_triggers, drop_look_triggers
from expunge.models.types import Identity, Json, UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ACTION = "action IN ('delete', 'verify')"
_SETTLED = "NOT settled OR action = 'verify'"
_EXTENDED = (
    "(extended_at IS NULL) = (extended_by IS NULL) AND (extended_at IS NULL) = (extended_why IS NULL)"
    " AND (extended_at IS NULL OR due_at IS NOT NULL)"
)
_PREFIX = "locator_prefix IS NULL OR (account IS NOT NULL AND locator_prefix <> '')"
_VERIFIED = "(status IN ('absent', 'present', 'unverifiable')) = (action = 'verify')"
_CHANGED = {
    ("erasure_case", "basis"): (
        "basis IN ('request', 'gdpr', 'uk_gdpr', 'ccpa')",
        "basis IN ('request', 'gdpr', 'uk_gdpr', 'ccpa', 'vcdpa')",
    ),
    ("erasure_record", "status"): (
        "status IN ('deleted', 'already_absent', 'failed', 'unknown', 'retained', 'waived')",
        "status IN ('deleted', 'already_absent', 'accepted', 'failed', 'unknown', 'retained', 'waived', 'absent',"
        " 'present', 'unverifiable')",
    ),
    ("erasure_hold", "covers_something"): (
        "subject IS NOT NULL OR conversation IS NOT NULL",
        "subject IS NOT NULL OR conversation IS NOT NULL OR case_id IS NOT NULL OR account IS NOT NULL",
    ),
    ("erasure_decision", "decision"): (
        "decision IN ('retry', 'waive', 'pause', 'resume', 'hold', 'release')",
        "decision IN ('retry', 'waive', 'pause', 'resume', 'hold', 'release', 'extend', 'replay')",
    ),
}


def upgrade() -> None:
    now, _ = defaults()
    text, integer, moment = sa.Text(), sa.Integer(), UtcDateTime()

    op.add_column("erasure_outbox", column("action", text, server_default="delete"))
    op.add_column("erasure_outbox", column("settled", sa.Boolean(), server_default=sa.false()))
    op.add_column("erasure_outbox", column("reappeared", integer, server_default=sa.text("0")))
    op.add_column("erasure_outbox", column("conversation", text, nullable=True))
    op.add_column("erasure_outbox", column("expires_at", moment, nullable=True))
    add_check("erasure_outbox", "action", _ACTION)
    add_check("erasure_outbox", "settled", _SETTLED)

    op.add_column("erasure_case", column("extended_at", moment, nullable=True))
    op.add_column("erasure_case", column("extended_by", text, nullable=True))
    op.add_column("erasure_case", column("extended_why", text, nullable=True))
    add_check("erasure_case", "extension_is_signed", _EXTENDED)

    op.add_column("erasure_hold", column("case_id", text, nullable=True))
    op.add_column("erasure_hold", column("account", text, nullable=True))
    op.add_column("erasure_hold", column("locator_prefix", text, nullable=True))
    add_check("erasure_hold", "prefix_has_account", _PREFIX)

    for (table, name), (before, after) in _CHANGED.items():
        change_check(table, name, before, after)
    add_check("erasure_record", "verified", _VERIFIED)
    create_hold_triggers(op.get_bind())
    create_look_triggers(op.get_bind())

    op.create_table(
        "erasure_capability",
        column("account", text, primary_key=True),
        column("endpoint", text, primary_key=True),
        column("scope", text, primary_key=True),
        column("name", text, primary_key=True),
        column("value", Json),
        column("found_at", moment, server_default=now),
        *time_checks("found_at"),
    )
    op.create_table(
        "erasure_sweep",
        column("name", text, primary_key=True),
        column("started_at", moment),
        column("ended_at", moment, nullable=True),
        *time_checks("started_at", "ended_at"),
    )
    op.create_table(
        "erasure_archive",
        column("id", integer, primary_key=True, autoincrement=False),
        column("url", text),
        column("segment", sa.BigInteger(), server_default=sa.text("0")),
        column("started_at", moment, server_default=now),
        column("failures", integer, server_default=sa.text("0")),
        column("failing_since", moment, nullable=True),
        column("reason", text, nullable=True),
        column("due_at", moment, server_default=now),
        sa.CheckConstraint("id = 1", name="one_row"),
        *time_checks("started_at", "failing_since", "due_at"),
    )
    op.create_table(
        "erasure_archive_queue",
        column("id", Identity, primary_key=True, autoincrement=True),
        column("kind", text),
        column("ref", text),
        column("segment", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("kind IN ('receipt', 'decision', 'tombstone', 'hold')", name="kind"),
        sqlite_autoincrement=True,
    )
    partial_index("ix_erasure_archive_queue_segment", "erasure_archive_queue", ["segment"], "segment IS NOT NULL")
    create_archive_triggers(op.get_bind())


def downgrade() -> None:
    drop_archive_triggers(op.get_bind())
    drop_hold_triggers(op.get_bind())
    drop_look_triggers(op.get_bind())
    for table in ("archive_queue", "archive", "sweep", "capability"):
        op.drop_table(f"erasure_{table}")
    drop_check("erasure_record", "verified", _VERIFIED)
    for (table, name), (before, after) in _CHANGED.items():
        change_check(table, name, after, before)
    for table, checks in {
        "erasure_outbox": {"action": _ACTION, "settled": _SETTLED},
        "erasure_case": {"extension_is_signed": _EXTENDED},
        "erasure_hold": {"prefix_has_account": _PREFIX},
    }.items():
        for name, condition in checks.items():
            drop_check(table, name, condition)
    for table, columns in {
        "erasure_outbox": ("action", "settled", "reappeared", "conversation", "expires_at"),
        "erasure_case": ("extended_at", "extended_by", "extended_why"),
        "erasure_hold": ("case_id", "account", "locator_prefix"),
    }.items():
        for name in columns:
            op.drop_column(table, name)
