"""Alembic's entry. The caller (models/schema.py) hands over an open connection; nothing is read from an ini file."""

from alembic import context
from sqlalchemy.schema import SchemaItem

from expunge.models import purge_tables, upkeep_tables  # noqa: F401  their tables belong to the same MetaData
from expunge.models.tables import Base

VERSION_TABLE = "erasure_schema_version"


def _ours(item: SchemaItem, name: str | None, type_: str, reflected: bool, compare_to: SchemaItem | None) -> bool:
    """The host's own tables beside ours are none of our business."""
    table = name if type_ == "table" else getattr(getattr(item, "table", None), "name", None)
    return bool(table and table.startswith("erasure_") and table != VERSION_TABLE)


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    include_object=_ours,
    transactional_ddl=True,
)
context.run_migrations()
