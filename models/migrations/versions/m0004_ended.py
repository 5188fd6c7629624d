"""A receipt may say that its target has ended, where no call removes the store's record of it."""

from expunge.models.migrations.checks import change_check

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_BEFORE = (
    "status IN ('deleted', 'already_absent', 'accepted', 'failed', 'unknown', 'retained', 'waived', 'absent',"
    " 'present', 'unverifiable')"
)
_AFTER = (
    "status IN ('deleted', 'already_absent', 'ended', 'accepted', 'failed', 'unknown', 'retained', 'waived', 'absent',"
    " 'present', 'unverifiable')"
)


def upgrade() -> None:
    change_check("erasure_record", "status", _BEFORE, _AFTER)


def downgrade() -> None:
    change_check("erasure_record", "status", _AFTER, _BEFORE)
