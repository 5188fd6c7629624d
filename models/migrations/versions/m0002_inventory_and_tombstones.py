"""What was created at stores, tombstones of purged conversations, and the fences around them."""

import sqlalchemy as sa
from alembic import op

from expunge.models.migrations.columns import byte_length, column, defaults, partial_index, time_checks
from expunge.models.migrations.tombstones import create_tombstone_triggers, drop_tombstone_triggers
from expunge.models.types import Identity, UtcDateTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    now, _ = defaults()
    text, integer, moment = sa.Text(), sa.Integer(), UtcDateTime()

    op.create_table(
        "erasure_inventory",
        column("id", Identity, primary_key=True, autoincrement=True),
        column("tenant", text, nullable=True),
        column("subject", text),
        column("conversation", text, nullable=True),
        column("account", text),
        column("kind", text),
        column("locator", text),
        column("region", text, nullable=True),
        column("created_at", moment, server_default=now),
        column("tracked_at", moment, server_default=now),
        column("expires_at", moment, nullable=True),
        column("derived_from", Identity, nullable=True),
        column("left_by", text, nullable=True),
        sa.CheckConstraint("subject <> ''", name="subject"),
        sa.CheckConstraint("tenant <> ''", name="tenant"),
        sa.CheckConstraint("conversation <> ''", name="conversation"),
        sa.CheckConstraint(f"{byte_length('locator')} BETWEEN 1 AND 1100", name="locator_length"),
        sa.CheckConstraint("length(account) BETWEEN 1 AND 64", name="account_length"),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name="kind_length"),
        sa.CheckConstraint("derived_from IS NULL OR derived_from <> id", name="not_from_itself"),
        *time_checks("created_at", "tracked_at", "expires_at"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_erasure_inventory_object",
        "erasure_inventory",
        [
            "account",
            "kind",
            "locator",
            sa.text("coalesce(tenant, '')"),
            "subject",
            sa.text("coalesce(conversation, '')"),
        ],
        unique=True,
    )
    op.create_index("ix_erasure_inventory_subject", "erasure_inventory", ["subject"])
    for name in ("conversation", "derived_from", "expires_at", "left_by"):
        partial_index(f"ix_erasure_inventory_{name}", "erasure_inventory", [name], f"{name} IS NOT NULL")
    op.create_table(
        "erasure_inventory_bucket",
        column("bucket", integer, primary_key=True, autoincrement=False),
        column("cases", integer, server_default=sa.text("0")),
    )

    op.create_table(
        "erasure_tombstone",
        column("graph", text, primary_key=True),
        column("conversation", text, primary_key=True),
        column("tenant", text, nullable=True),
        column("principal", text),
        column("purged_at", moment, server_default=now),
        sa.CheckConstraint("length(graph) BETWEEN 1 AND 64", name="graph_length"),
        sa.CheckConstraint("conversation <> ''", name="conversation"),
        *time_checks("purged_at"),
    )
    op.create_index("ix_erasure_tombstone_conversation", "erasure_tombstone", ["conversation"])
    op.create_table(
        "erasure_fence",
        column("graph", text, primary_key=True),
        column("fingerprint", text),
        column("installed_at", moment, server_default=now),
        *time_checks("installed_at"),
    )
    op.create_table(
        "erasure_fence_bucket",
        column("bucket", integer, primary_key=True, autoincrement=False),
        column("purges", integer, server_default=sa.text("0")),
    )
    create_tombstone_triggers(op.get_bind())


def downgrade() -> None:
    bind = op.get_bind()
    if bind.execute(sa.text("SELECT 1 FROM erasure_tombstone LIMIT 1")).first():
        raise RuntimeError(
            "erasure_tombstone keeps purged conversations from coming back: export it and drop the table by hand if"
            " that is really meant"
        )
    drop_tombstone_triggers(bind)
    for table in ("fence_bucket", "fence", "tombstone", "inventory_bucket", "inventory"):
        op.drop_table(f"erasure_{table}")
