"""The fence on PostgreSQL: the statements that build it.

Every writer takes a shared lock on its conversation's bucket before it looks for the tombstone; the purge takes the
exclusive one before any row. So a purge waits for the writers that were first, and a writer that comes later sees the
tombstone, since READ COMMITTED takes a new snapshot for each statement and the tombstone is read in one of its own.

- The trigger never waits: an UPDATE has locked its row before the trigger runs, and a purge may be waiting for it. The
  trigger tries, and raises what is to be retried (SQLSTATE 40001).
- A writer at REPEATABLE READ or SERIALIZABLE cannot see a tombstone younger than its snapshot. It locks the bucket's
  row as well, which every purge updates, and PostgreSQL itself refuses it then (40001).
- Which conversation a parent's row belongs to is asked again once the lock is held, until nothing new is found; and who
  moves a row that others find their conversation by takes the exclusive lock of both, as a purge does.
- The functions run with the rights of their owner: a writer need not be allowed to read tombstones or parents, nor to
  lock buckets, and row-level security hides nothing from them. Their search_path is fixed and every table is named with
  its schema, so that no temporary table can stand in for another.
- Triggers are ENABLE ALWAYS, so that session_replication_role = replica does not skip them, and their names sort behind
  the host's, so that they see what its own BEFORE triggers have made of a row.
"""

from collections.abc import Iterator

from expunge.models.errors import BUSY_MARK, PURGED_MARK, UNRESOLVED_MARK
from expunge.models.fence_climb import Climb, Guard
from expunge.models.fence_names import BUCKETS, function_name, trigger_name
from expunge.models.fence_reach import Reach, as_text, literal, quote, select
from expunge.models.graph import Rule
from expunge.models.graph_live import Edge

LOCK_CLASS = 0x65787066
"""Of the advisory locks; the bucket is the other half of their key."""
SEARCH_PATH = "pg_catalog, pg_temp"

_ROUNDS = 5
"""Of asking the parents; more than two means that rows are being moved at this very moment."""


def statements(reach: Reach, *, lock: bool) -> Iterator[str]:
    """All of them but the fingerprint's. Without `lock` the writers' lock is left out, to show what it is for."""
    schema = quote(reach.schema or "public")
    yield (
        f"INSERT INTO {schema}.erasure_fence_bucket (bucket)"
        f" SELECT generate_series(0, {BUCKETS - 1}) ON CONFLICT (bucket) DO NOTHING"
    )
    yield (
        f"CREATE OR REPLACE FUNCTION {schema}.erasure_fence_bucket_of(graph text, conversation text) RETURNS integer\n"
        "LANGUAGE sql IMMUTABLE PARALLEL SAFE AS\n"
        f"$fence$ SELECT pg_catalog.hashtext(graph || '/' || conversation) & {BUCKETS - 1} $fence$"
    )
    yield _check(schema, lock)
    for name in reach.live.order:
        yield _trigger_function(reach, schema, name)
        trigger = quote(trigger_name(reach.live.graph.name, name))
        table = reach.table(name)
        yield (
            f"CREATE OR REPLACE TRIGGER {trigger} BEFORE INSERT OR UPDATE ON {table}\n"
            f"FOR EACH ROW EXECUTE FUNCTION {schema}.{quote(function_name(reach.live.graph.name, name))}()"
        )
        yield f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}"


def _raise(mark: str, rest: str, state: str) -> str:
    return f"RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = {literal(f'{mark}: {rest}')}"


_BUSY = _raise(BUSY_MARK, "a purge is under way, roll back and try again", "40001")
_PURGED = _raise(PURGED_MARK, "nothing may be written to it", "23001")
_UNRESOLVED = (
    f"RAISE EXCEPTION USING ERRCODE = '23503', MESSAGE = {literal(f'{UNRESOLVED_MARK}: a row of ')}"
    " || TG_TABLE_NAME || ' belongs to no conversation that can be told'"
)


def _check(schema: str, lock: bool) -> str:
    taking = f"""
    IF moving THEN
        IF NOT pg_catalog.pg_try_advisory_xact_lock({LOCK_CLASS}, v_bucket) THEN {_BUSY}; END IF;
        UPDATE {schema}.erasure_fence_bucket AS b SET purges = b.purges + 1 WHERE b.bucket = v_bucket;
    ELSE
        IF NOT pg_catalog.pg_try_advisory_xact_lock_shared({LOCK_CLASS}, v_bucket) THEN {_BUSY}; END IF;
        IF pg_catalog.current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            PERFORM 1 FROM {schema}.erasure_fence_bucket AS b WHERE b.bucket = v_bucket FOR SHARE;
        END IF;
    END IF;"""
    return f"""CREATE OR REPLACE FUNCTION {schema}.erasure_fence_check(
    graph text, conversation text, moving boolean DEFAULT false, refuse boolean DEFAULT true
) RETURNS void LANGUAGE plpgsql VOLATILE AS $fence$
DECLARE
    v_bucket integer := {schema}.erasure_fence_bucket_of(graph, conversation);
BEGIN{taking if lock else ""}
    IF refuse AND EXISTS (
        SELECT 1 FROM {schema}.erasure_tombstone AS t
         WHERE t.graph = erasure_fence_check.graph AND t.conversation = erasure_fence_check.conversation
    ) THEN {_PURGED}; END IF;
END $fence$"""


def _trigger_function(reach: Reach, schema: str, table: str) -> str:
    name = quote(function_name(reach.live.graph.name, table))
    body = "\n".join(_body(reach, schema, table))
    return f"""CREATE OR REPLACE FUNCTION {schema}.{name}() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = {SEARCH_PATH} AS $fence$
#variable_conflict use_column
DECLARE
    v_moving boolean := false;
    v_refuse boolean;
    v_circles boolean;
    v_held text[];
    v_found text[];
    v_conversation text;
BEGIN
{body}
    RETURN NEW;
END $fence$"""


def _body(reach: Reach, schema: str, table: str) -> Iterator[str]:
    def check(conversation: str, refuse: str = "true") -> str:
        graph = literal(reach.live.graph.name)
        return f"PERFORM {schema}.erasure_fence_check({graph}, {conversation}, v_moving, {refuse});"

    own = [f"NEW.{quote(column)}" for column in reach.own(table)]
    yield from _leaving(reach, table, check("v_conversation", "v_refuse"))
    for value in own:
        yield f"    IF {value} IS NOT NULL THEN {check(as_text(value))} END IF;"
    climb = Climb(reach, near=_near(reach), far=lambda edge: reach.changed(edge.columns))
    if not reach.climbed(table):
        return
    nothing = " AND ".join(
        "(" + " OR ".join(f"NEW.{quote(column)} IS NULL" for column in edge.columns) + ")"
        for edge in reach.climbed(table)
    )
    circles = climb.circles(table, "NEW")
    asking = _ask(climb.flat(table, "NEW"), circles or "false")
    if circles:
        # a query that goes round costs several times as much, and most climbs do not
        asking += f"\n        IF v_circles THEN\n{_ask(climb.query(table, 'NEW'), 'true')}\n        END IF;"
    yield f"""    IF {nothing} THEN RETURN NEW; END IF;
    v_held := pg_catalog.array_remove(ARRAY[{", ".join(map(as_text, own))}]::text[], NULL);
    FOR v_round IN 1..{_ROUNDS} LOOP
{asking}
        IF v_found IS NULL THEN RETURN NEW; END IF;
        IF pg_catalog.array_position(v_found, NULL) IS NOT NULL THEN {_UNRESOLVED}; END IF;
        FOREACH v_conversation IN ARRAY v_found LOOP
            {check("v_conversation")}
        END LOOP;
        v_held := v_held || v_found;
    END LOOP;
    {_BUSY};"""


def _ask(query: str, circles: str) -> str:
    """What is found beside the conversations whose lock is held already, and whether that is all. One statement, so one
    snapshot: between two, a parent could move from what the second looks at to what the first has looked at."""
    found = query or "SELECT CAST(NULL AS text) WHERE false"
    return (
        f"        SELECT pg_catalog.array_agg(found.conversation), {circles} INTO v_found, v_circles FROM (\n{found}\n"
        "        ) AS found(conversation) WHERE found.conversation IS NULL OR found.conversation <> ALL (v_held);"
    )


def _leaving(reach: Reach, table: str, check: str) -> Iterator[str]:
    """What an update takes away from. A row with the rule `detach` may leave a purged conversation, as may the root's
    row what it refers to: that is what a purge itself does with them."""
    at_root = table == reach.root.table
    columns = [reach.root.key] if at_root else reach.columns(table)
    if not columns:
        return
    refuse = "false" if reach.live.tables[table].rule == Rule.DETACH else "true"

    def own(row: str) -> list[str]:
        held = [reach.root.key] if at_root else reach.own(table)
        values = [f"{row}.{quote(column)}" for column in held]
        return [select(as_text(value), (), (f"{value} IS NOT NULL",)) for value in values]

    def goes_on(edge: Edge) -> str:
        # taking away a reference to what is not there, as ON DELETE SET NULL does, brings nothing back
        told = " AND ".join(f"NEW.{quote(column)} IS NOT NULL" for column in edge.columns)
        return f"{reach.changed(edge.columns)} AND {told}"

    def told(row: str, near: Guard) -> str:
        climb = "" if at_root else Climb(reach, near=near, far=_never).query(table, row)
        return "\nUNION ALL ".join(filter(None, [*own(row), climb]))

    yield f"    IF TG_OP = 'UPDATE' AND {reach.changed(columns)} THEN"
    if at_root or reach.is_parent(table):
        sides = [
            "(SELECT pg_catalog.array_agg(DISTINCT found.conversation ORDER BY found.conversation)"
            f" FROM (\n{told(row, _never)}\n) AS found(conversation))"
            for row in ("OLD", "NEW")
        ]
        yield f"        v_moving := {sides[0]} IS DISTINCT FROM {sides[1]};"
    yield f"""        v_refuse := {refuse};
        FOR v_conversation IN SELECT DISTINCT found.conversation FROM (
{told("OLD", goes_on)}
        ) AS found(conversation) LOOP
            IF v_conversation IS NULL THEN {_UNRESOLVED}; END IF;
            {check}
        END LOOP;
    END IF;"""


def _never(_: Edge) -> None:
    return None


def _near(reach: Reach) -> Guard:
    def counts(edge: Edge) -> str:
        # behind a foreign key a parent is missing only while the database carries out a cascade, which a row with
        # several references sees half done; in an INSERT all columns differ from those of OLD, which are NULL
        return "true" if edge.foreign_key is None else reach.changed(edge.columns)

    return counts


def function_bodies(reach: Reach) -> dict[str, str]:
    """What PostgreSQL has of each function, by its name."""
    found = {}
    for statement in statements(reach, lock=True):
        head, mark, rest = statement.partition("$fence$")
        if mark:
            name = head.split("(", 1)[0].rsplit(".", 1)[1].strip('"')
            found[name] = rest.rpartition("$fence$")[0]
    return found
