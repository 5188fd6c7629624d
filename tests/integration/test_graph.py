"""A graph against a live database: every way of forgetting something is told, with the table and what to do."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from expunge.models import schema
from expunge.models.database import Database
from expunge.models.errors import InvalidGraph
from expunge.models.graph import ActiveRun, Graph, Member, Reference, Root, Rule, TargetColumns, Unrelated
from expunge.models.graph_live import examine, find_problems, read_graph

SESSION = "CREATE TABLE session (id text PRIMARY KEY, tenant_id text, principal_id text, version integer, title text)"
RUN = "CREATE TABLE run (id text PRIMARY KEY, session_id text NOT NULL REFERENCES session (id), state text)"
EVENT = "CREATE TABLE event (id text PRIMARY KEY, run_id text REFERENCES run (id), payload text)"
BASE = (SESSION, RUN, EVENT)
ROOT = Root("session")
MEMBERS = (Member("run"), Member("event"))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    """A database of the host's without Expunge's tables; each test rolls back."""
    if request.param == "sqlite":
        database = Database.open(f"sqlite:///{tmp_path_factory.mktemp('graph') / 'host.db'}")
        yield database.engine
        database.close()
        return
    server = request.getfixturevalue("postgres")
    name = server.create()
    database = Database.open(server.url(name))
    yield database.engine
    database.close()
    server.drop(name)


@pytest.fixture
def connection(engine: sa.Engine) -> Iterator[Connection]:
    with engine.connect() as connection, connection.begin() as transaction:
        yield connection
        transaction.rollback()


def make(connection: Connection, *statements: str) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)


def graph(*members: Member, root: Root = ROOT, unrelated: tuple[Unrelated, ...] = (), name: str = "sessions") -> Graph:
    return Graph(name, root, members, unrelated)


def detach(table: str) -> Member:
    return Member(table, Rule.DETACH)


def keep(table: str, *references: Reference, why: str | None = "the law wants it") -> Member:
    return Member(table, Rule.KEEP, why, references)


def test_a_graph_that_fits_is_read_whole(connection: Connection) -> None:
    make(
        connection,
        SESSION,
        RUN.replace("REFERENCES session (id)", "CONSTRAINT fk_run REFERENCES session ON DELETE CASCADE"),
        "CREATE TABLE event (id text PRIMARY KEY, run_id text REFERENCES run (id) DEFERRABLE INITIALLY DEFERRED,"
        " session_id text, account text, locator text)",
        "CREATE VIEW recent AS SELECT session_id FROM run",
    )
    targets = (TargetColumns("account", "=file", "locator"),)
    declared = graph(Member("event", references=(Reference("session_id", "session"),), targets=targets), Member("run"))
    live = read_graph(connection, declared)
    assert live.order == ("event", "run", "session")
    assert live.cyclic == frozenset()
    assert (live.tables["session"].rule, live.tables["session"].key) == (Rule.DELETE, ("id",))
    assert live.tables["event"].targets == targets
    assert live.tables["event"].columns == ("id", "run_id", "session_id", "account", "locator")
    (run,) = live.tables["run"].edges
    assert (run.columns, run.parent, run.parent_columns, run.nullable) == (("session_id",), "session", ("id",), False)
    on_sqlite = connection.dialect.name == "sqlite"
    assert (run.foreign_key, run.on_delete) == ("" if on_sqlite else "fk_run", "CASCADE")
    assert run.deferrable == on_sqlite
    event, declared_edge = live.tables["event"].edges
    assert (event.parent, event.nullable, event.on_delete, event.deferrable) == ("run", True, None, True)
    assert event.foreign_key is not None
    assert (declared_edge.parent, declared_edge.columns, declared_edge.parent_columns) == (
        "session",
        ("session_id",),
        ("id",),
    )
    assert declared_edge.foreign_key is None


def test_a_cycle_and_a_reference_to_itself_are_named(connection: Connection) -> None:
    on_sqlite = connection.dialect.name == "sqlite"
    # a table that is not there yet can be referred to on SQLite, and cannot be altered so
    later = "REFERENCES a (id)" if on_sqlite else ""
    make(
        connection,
        f"CREATE TABLE session (id text PRIMARY KEY, a_id text {later}, parent_id text REFERENCES session)",
        "CREATE TABLE a (id text PRIMARY KEY, session_id text REFERENCES session (id))",
        "CREATE TABLE b (id text PRIMARY KEY, a_id text REFERENCES a (id), reply_to text REFERENCES b (id))",
        "CREATE TABLE c (id text PRIMARY KEY, b_id text REFERENCES b (id))",
        *(() if on_sqlite else ("ALTER TABLE session ADD FOREIGN KEY (a_id) REFERENCES a (id)",)),
    )
    live = read_graph(connection, graph(Member("a"), Member("b"), Member("c")))
    assert live.order == ("c", "b", "a", "session")
    assert live.cyclic == {"session", "a", "b"}


def test_a_composite_foreign_key_is_one_reference(connection: Connection) -> None:
    make(
        connection,
        "CREATE TABLE session (id text PRIMARY KEY, tenant text, UNIQUE (tenant, id))",
        "CREATE TABLE run (tenant text, n integer, session_id text, PRIMARY KEY (tenant, n),"
        " FOREIGN KEY (tenant, session_id) REFERENCES session (tenant, id))",
        "CREATE TABLE event (id text PRIMARY KEY, tenant text, n integer,"
        " FOREIGN KEY (tenant, n) REFERENCES run (tenant, n))",
    )
    live = read_graph(connection, graph(Member("run"), Member("event")))
    (run,), (event,) = live.tables["run"].edges, live.tables["event"].edges
    assert (run.columns, run.parent_columns, run.nullable) == (("tenant", "session_id"), ("tenant", "id"), False)
    assert (event.columns, event.parent_columns, event.nullable) == (("tenant", "n"), ("tenant", "n"), True)
    assert live.tables["run"].key == ("tenant", "n")


CASES = {
    "a table that is reached": (
        (*BASE, "CREATE TABLE run_log (id text PRIMARY KEY, run_id text REFERENCES run (id))"),
        graph(*MEMBERS),
        ["run_log: its foreign key (run_id) leads to run, and nobody declared it; a purge would fail on its rows: add"],
    ),
    "a table that is reached through a forgotten one": (
        (SESSION, RUN, EVENT),
        graph(),
        ["run: its foreign key (session_id) leads to session", "event: its foreign key (run_id) leads to run"],
    ),
    "a table that the database would empty unseen": (
        (*BASE, "CREATE TABLE note (id text PRIMARY KEY, event_id text REFERENCES event (id) ON DELETE CASCADE)"),
        graph(*MEMBERS),
        ["note: its foreign key (event_id) leads to event, and nobody declared it; the database would delete its rows"],
    ),
    "a table that the database would change unseen": (
        (*BASE, "CREATE TABLE note (id text PRIMARY KEY, event_id text REFERENCES event (id) ON DELETE SET NULL)"),
        graph(*MEMBERS),
        ["note: its foreign key (event_id) leads to event, and nobody declared it; the database would change its rows"],
    ),
    "a column that looks like a reference": (
        (*BASE, "CREATE TABLE memory (id text PRIMARY KEY, source_session_id text)"),
        graph(*MEMBERS),
        ["memory.source_session_id: looks like a reference to session, and nobody declared it: make it a foreign key"],
    ),
    "a column of a member that looks like a reference": (
        (SESSION, RUN, "CREATE TABLE event (id text PRIMARY KEY, run_id text REFERENCES run (id), session_id text)"),
        graph(*MEMBERS),
        ["event.session_id: looks like a reference to session"],
    ),
    "a column of the root that looks like a reference": (
        ("CREATE TABLE session (id text PRIMARY KEY, parent_session_id text)",),
        graph(),
        [
            "session.parent_session_id: looks like a reference to session, and nobody declared it: make it a foreign "
            "key, or list it as `unrelated`"
        ],
    ),
    "a column that looks like a reference, and has a foreign key to something else": (
        (
            *BASE,
            "CREATE TABLE login (id text PRIMARY KEY)",
            "CREATE TABLE cookie (id text PRIMARY KEY, session_id text REFERENCES login (id))",
        ),
        graph(*MEMBERS),
        ["cookie.session_id: looks like a reference to session"],
    ),
    "a reference that is called unrelated": (
        BASE,
        graph(*MEMBERS, unrelated=(Unrelated("run", "session_id", "it is another session"),)),
        ["run.session_id: is called unrelated, and is a reference: take it out of `unrelated`"],
    ),
    "unrelated without a reason": (
        (*BASE, "CREATE TABLE cookie (id text PRIMARY KEY, session_id text)"),
        graph(*MEMBERS, unrelated=(Unrelated("cookie", "session_id", " "),)),
        ["cookie.session_id: is called unrelated without a reason: say it in `why`"],
    ),
    "no such table": (
        BASE,
        graph(*MEMBERS, Member("evnt")),
        ["evnt: the database has no such table: did you mean event?"],
    ),
    "no such root": (
        ("CREATE TABLE something (id text PRIMARY KEY)",),
        graph(root=Root("conversation")),
        ["conversation: the database has no such table: correct the name, or run the host's migrations"],
    ),
    "no such columns": (
        BASE,
        graph(
            Member("run"),
            Member(
                "event", references=(Reference("thread", "run"),), targets=(TargetColumns("a", "=file", "payloat"),)
            ),
            root=Root(
                "session",
                key="uid",
                tenant="tenant",
                owner="owner",
                version="versio",
                active_run=ActiveRun("run", ("running",), key="uuid", state="stat"),
            ),
            unrelated=(Unrelated("event", "session_id", "an example"),),
        ),
        [
            "session.uid: the table has no such column",
            "session.tenant: the table has no such column",
            "session.owner: the table has no such column",
            "session.versio: the table has no such column: did you mean version?",
            "event.thread: the table has no such column",
            "event.a: the table has no such column",
            "event.payloat: the table has no such column: did you mean payload?",
            "event.session_id: the table has no such column",
            "run.uuid: the table has no such column",
            "run.stat: the table has no such column: did you mean state?",
        ],
    ),
    "a root's key that names several": (
        ("CREATE TABLE session (tenant text, id text, PRIMARY KEY (tenant, id))",),
        graph(),
        ["session.id: is not unique by itself, and must name one conversation: add a unique constraint"],
    ),
    "a root's key that is unique under a condition only": (
        (
            "CREATE TABLE session (n integer PRIMARY KEY, id text, gone integer)",
            "CREATE UNIQUE INDEX only_some ON session (id) WHERE gone = 0",
        ),
        graph(),
        ["session.id: is not unique by itself"],
    ),
    "a member without a path to the root": (
        (
            *BASE,
            "CREATE TABLE stray (id text PRIMARY KEY)",
            "CREATE TABLE more (id text, s text REFERENCES stray (id))",
        ),
        graph(*MEMBERS, Member("stray"), Member("more")),
        [
            "stray: no foreign key and no declared reference leads from it to session: declare the column that does",
            "more: no foreign key and no declared reference leads from it to session: declare the column that does",
        ],
    ),
    "a member that is reached through rows that stay": (
        (
            *BASE,
            "CREATE TABLE skill (id text PRIMARY KEY, run_id text REFERENCES run (id))",
            "CREATE TABLE skill_note (id text PRIMARY KEY, skill_id text REFERENCES skill (id))",
        ),
        graph(*MEMBERS, detach("skill"), Member("skill_note")),
        ["skill_note: is reached only through skill, whose rows stay"],
    ),
    "a member that only the root's row refers to": (
        (
            "CREATE TABLE model (id text PRIMARY KEY)",
            "CREATE TABLE session (id text PRIMARY KEY, model text REFERENCES model (id))",
        ),
        graph(Member("model")),
        ["model: no foreign key and no declared reference leads from it to session"],
    ),
    "detach of what cannot be NULL": (
        (*BASE, "CREATE TABLE skill (id text PRIMARY KEY, run_id text NOT NULL REFERENCES run (id))"),
        graph(*MEMBERS, detach("skill")),
        ["skill.run_id: is to be detached from run, and cannot be NULL (NOT NULL, a part of the primary key"],
    ),
    "detach of a part of the primary key": (
        (*BASE, "CREATE TABLE skill (run_id text REFERENCES run (id), n integer, PRIMARY KEY (run_id, n))"),
        graph(*MEMBERS, detach("skill")),
        ["skill.run_id: is to be detached from run, and cannot be NULL"],
    ),
    "detach of a composite reference of which one column cannot be NULL": (
        (
            "CREATE TABLE session (id text PRIMARY KEY, tenant text, UNIQUE (tenant, id))",
            "CREATE TABLE skill (id text PRIMARY KEY, tenant text NOT NULL, session_id text,"
            " FOREIGN KEY (tenant, session_id) REFERENCES session (tenant, id))",
        ),
        graph(detach("skill")),
        ["skill.(tenant, session_id): is to be detached from session, and cannot be NULL"],
    ),
    "detach of a declared reference that cannot be NULL": (
        (*BASE, "CREATE TABLE skill (id text PRIMARY KEY, session_id text NOT NULL)"),
        graph(*MEMBERS, Member("skill", Rule.DETACH, references=(Reference("session_id", "session"),))),
        ["skill.session_id: is to be detached from session, and cannot be NULL"],
    ),
    "detach of a generated column": (
        (
            *BASE,
            "CREATE TABLE skill (id text PRIMARY KEY, run_id text,"
            " session_id text GENERATED ALWAYS AS (upper(run_id)) STORED)",
        ),
        graph(*MEMBERS, Member("skill", Rule.DETACH, references=(Reference("session_id", "session"),))),
        ["skill.session_id: is to be detached from session, and cannot be NULL"],
    ),
    "keep without a reason": (
        (*BASE, "CREATE TABLE audit (id text PRIMARY KEY, session_id text)"),
        graph(*MEMBERS, keep("audit", Reference("session_id", "session"), why=None)),
        ["audit: is kept without a reason: say in `why` what allows it"],
    ),
    "keep of rows that the purge would fail on": (
        (*BASE, "CREATE TABLE audit (id text PRIMARY KEY, session_id text REFERENCES session (id))"),
        graph(*MEMBERS, keep("audit")),
        ["audit.session_id: is to be kept, but its foreign key to session is ON DELETE NO ACTION, so the purge would"],
    ),
    "keep of rows that the purge would fail on at once": (
        (*BASE, "CREATE TABLE audit (id text PRIMARY KEY, session_id text REFERENCES session (id) ON DELETE RESTRICT)"),
        graph(*MEMBERS, keep("audit")),
        ["audit.session_id: is to be kept, but its foreign key to session is ON DELETE RESTRICT, so the purge would"],
    ),
    "keep of rows that the database would delete": (
        (*BASE, "CREATE TABLE audit (id text PRIMARY KEY, session_id text REFERENCES session (id) ON DELETE CASCADE)"),
        graph(*MEMBERS, keep("audit")),
        ["audit.session_id: is to be kept, but its foreign key to session is ON DELETE CASCADE, so the database would"],
    ),
    "keep of rows that the database would change": (
        (*BASE, "CREATE TABLE audit (id text PRIMARY KEY, session_id text REFERENCES session (id) ON DELETE SET NULL)"),
        graph(*MEMBERS, keep("audit")),
        ["audit.session_id: is to be kept, but its foreign key to session is ON DELETE SET NULL, so the"],
    ),
    "a purge that would delete another conversation": (
        ("CREATE TABLE session (id text PRIMARY KEY, parent text NOT NULL REFERENCES session (id) ON DELETE CASCADE)",),
        graph(),
        ["session.parent: refers to session with ON DELETE CASCADE and cannot be NULL"],
    ),
    "a reference to what is no member": (
        (*BASE, "CREATE TABLE login (id text PRIMARY KEY)"),
        graph(Member("run", references=(Reference("state", "login"),)), Member("event")),
        ["run.state: refers to login, which is neither the root nor a member: declare login too"],
    ),
    "a reference to a composite key": (
        (
            SESSION,
            "CREATE TABLE run (session_id text REFERENCES session (id), n integer, PRIMARY KEY (session_id, n))",
            "CREATE TABLE event (id text PRIMARY KEY, run_n integer)",
        ),
        graph(Member("run"), Member("event", references=(Reference("run_n", "run"),))),
        [
            "event.run_n: refers to run, which has the primary key (session_id, n): say in `to_column` which column",
            "event: no foreign key and no declared reference leads from it to session",
        ],
    ),
    "a reference to a column that is not there": (
        BASE,
        graph(Member("run"), Member("event", references=(Reference("payload", "run", "nmae"),))),
        ["run.nmae: the table has no such column"],
    ),
    "active_run that looks elsewhere": (
        (*BASE, "CREATE TABLE job (id text PRIMARY KEY, state text)"),
        graph(*MEMBERS, root=Root("session", active_run=ActiveRun("job", ("running",)))),
        ["job: active_run looks there, and it is neither the root nor a member: declare it"],
    ),
    "active_run without states": (
        BASE,
        graph(*MEMBERS, root=Root("session", active_run=ActiveRun("run", ()))),
        ["run: active_run names no states: list those in which a run is active"],
    ),
    "a member that is declared twice": (
        BASE,
        graph(*MEMBERS, Member("run")),
        ["run: is declared 2 times: give each table one rule"],
    ),
    "a root that is a member": (
        BASE,
        graph(*MEMBERS, Member("session")),
        ["session: is the root, and its rows are deleted last: take it out of the members"],
    ),
    "a rule that is none": (
        BASE,
        graph(Member("run"), Member("event", "remove")),  # type: ignore[arg-type]
        ["event: its rule must be one of delete, detach, keep"],
    ),
    "a name that is none": (
        BASE,
        graph(*MEMBERS, name="My sessions"),
        ["graph 'My sessions': its name must be a lower-case letter, then lower-case letters, digits or underscores"],
    ),
    "targets that can be none": (
        BASE,
        graph(Member("run"), Member("event", targets=(TargetColumns("=Open AI", "=cheese", "="),))),
        [
            "event: its targets name the account 'Open AI': an account's name is",
            "event: its targets name the kind 'cheese', which no eraser has",
            "event: its targets have an empty locator: name the column that holds it",
        ],
    ),
    "a table of Expunge's": (
        BASE,
        graph(*MEMBERS, Member("erasure_outbox")),
        ["erasure_outbox: is Expunge's own table, and belongs to no conversation: take it out"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_told_and_nothing_else(connection: Connection, case: str) -> None:
    statements, declared, expected = CASES[case]
    make(connection, *statements)
    problems = find_problems(connection, declared)
    assert len(problems) == len(expected), problems
    for begin in expected:
        assert [line for line in problems if line.startswith(begin)], (begin, problems)
    assert all("\n" not in line for line in problems)
    with pytest.raises(InvalidGraph) as raised:
        read_graph(connection, declared)
    assert list(raised.value.problems) == problems


def test_what_is_declared_is_no_problem(connection: Connection) -> None:
    """The other side of each of the cases above."""
    make(
        connection,
        *BASE,
        "CREATE TABLE skill (id text PRIMARY KEY, run_id text REFERENCES run (id) ON DELETE CASCADE)",
        # rows that stay have children of their own, which stay with them
        "CREATE TABLE deployment (id text PRIMARY KEY, skill_id text REFERENCES skill (id))",
        "CREATE TABLE audit (id text PRIMARY KEY, session_id text NOT NULL)",
        "CREATE TABLE cookie (id text PRIMARY KEY, session_id text)",
        "CREATE TABLE message (id integer PRIMARY KEY, n text UNIQUE, event_id text REFERENCES event (id))",
        "CREATE TABLE citation (id integer PRIMARY KEY, message text)",
    )
    declared = graph(
        *MEMBERS,
        detach("skill"),
        keep("audit", Reference("session_id", "session")),
        Member("message", targets=(TargetColumns("=openai_eu", "=file", "n"),)),
        Member("citation", references=(Reference("message", "message", "n"),)),
        root=Root("session", tenant="tenant_id", version="version", active_run=ActiveRun("run", ("running",))),
        unrelated=(Unrelated("cookie", "session_id", "of the browser"),),
    )
    assert find_problems(connection, declared) == []


def test_a_root_may_be_known_by_a_unique_column(connection: Connection) -> None:
    make(
        connection,
        "CREATE TABLE chat (n integer PRIMARY KEY, uid text UNIQUE)",
        "CREATE TABLE message (id integer PRIMARY KEY, chat_n integer REFERENCES chat (n), chat_uid text)",
    )
    problems = find_problems(connection, graph(Member("message"), root=Root("chat", key="uid")))
    assert [line.partition(":")[0] for line in problems] == ["message.chat_uid"]


@pytest.mark.parametrize(
    ("root", "column", "looks"),
    [
        (Root("session"), "session_id", True),
        (Root("session"), "source_session_id", True),
        (Root("session"), "SessionId", True),
        (Root("session"), "sessionid", True),
        (Root("session"), "obsession_id", False),
        (Root("session"), "session_ideas", False),
        (Root("session"), "session", False),
        (Root("sessions"), "session_id", True),
        (Root("sessions"), "sessions_id", True),
        (Root("conversations"), "first_conversation_id", True),
        (Root("conversations"), "session_id", False),
        (Root("ChatSession"), "chat_session_id", True),
        (Root("chat_sessions"), "session_id", True),
        (Root("stories"), "story_id", True),
        (Root("session", key="uuid"), "session_uuid", True),
        (Root("session", key="uuid"), "uuid", False),
        (Root("chat", key="thread_ref"), "thread_ref", True),
        (Root("process"), "process_id", True),
    ],
)
def test_how_a_reference_is_usually_called(connection: Connection, root: Root, column: str, looks: bool) -> None:
    make(
        connection,
        f'CREATE TABLE "{root.table}" ({root.key} text PRIMARY KEY)',
        f'CREATE TABLE other (o integer PRIMARY KEY, "{column}" text)',
    )
    problems = find_problems(connection, graph(root=root))
    assert [line.partition(":")[0] for line in problems] == ([f"other.{column}"] if looks else [])


def test_expunges_own_tables_are_no_hosts(database: Database) -> None:
    """`erasure_outbox.case_id` refers to Expunge's case, not to a host's."""
    with database.begin() as tx:
        make(tx.connection, 'CREATE TABLE "case" (id text PRIMARY KEY)')
        assert find_problems(tx.connection, graph(root=Root("case"))) == []
        tables = set(sa.inspect(tx.connection).get_table_names()) - {"case", schema.VERSION_TABLE}
        live = examine(tx.connection, graph(*(Member(name) for name in sorted(tables)), root=Root("case")))
    assert len(live[1]) == len(tables)
    assert all("is Expunge's own table" in line for line in live[1])


def test_a_change_of_the_host_is_seen_at_once(engine: sa.Engine) -> None:
    """What was read is kept only while no table changes, also if a rollback takes the change back."""
    declared = graph(*MEMBERS)
    with engine.connect() as connection:
        with connection.begin() as transaction:
            make(connection, *BASE)
            live = read_graph(connection, declared)
            assert read_graph(connection, declared) is live
            savepoint = connection.begin_nested()
            make(connection, "CREATE TABLE note (id text PRIMARY KEY, run_id text REFERENCES run (id))")
            with pytest.raises(InvalidGraph, match="note"):
                read_graph(connection, declared)
            savepoint.rollback()
            assert read_graph(connection, declared) == live
            make(connection, "ALTER TABLE event ADD COLUMN session_id text")
            with pytest.raises(InvalidGraph, match=r"event\.session_id"):
                read_graph(connection, declared)
            transaction.rollback()
        with connection.begin(), pytest.raises(InvalidGraph, match="no such table"):
            read_graph(connection, declared)


# -- SQLite ---------------------------------------------------------------------------------------------------------


def test_sqlite_takes_no_notice_of_case() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        make(
            connection,
            "CREATE TABLE Session (Id text PRIMARY KEY)",
            "CREATE TABLE run (id text PRIMARY KEY, session_id text REFERENCES SESSION (ID))",
            "CREATE TABLE event (id text PRIMARY KEY, run_id text, FOREIGN KEY (RUN_ID) REFERENCES RUN)",
        )
        live = read_graph(connection, graph(*MEMBERS, root=Root("Session", key="Id")))
        assert live.tables["run"].edges[0].parent_columns == ("Id",)
        assert live.tables["event"].edges[0].columns == ("run_id",)
        assert live.order == ("event", "run", "Session")
    engine.dispose()


# -- PostgreSQL -----------------------------------------------------------------------------------------------------


@pytest.fixture
def postgres_connection(postgres: object, empty_postgres_url: str) -> Iterator[Connection]:
    database = Database.open(empty_postgres_url)
    with database.engine.connect() as connection, connection.begin():
        yield connection
    database.close()


def test_a_partition_is_no_member_of_its_own(postgres_connection: Connection) -> None:
    make(
        postgres_connection,
        "CREATE TABLE session (id text, part integer, PRIMARY KEY (id))",
        "CREATE TABLE run (id text, session_id text REFERENCES session (id), PRIMARY KEY (id)) PARTITION BY LIST (id)",
        "CREATE TABLE run_1 PARTITION OF run FOR VALUES IN ('a') PARTITION BY LIST (id)",
        "CREATE TABLE run_1_1 PARTITION OF run_1 FOR VALUES IN ('a')",
        "CREATE TABLE event (id text PRIMARY KEY, run_id text REFERENCES run (id))",
    )
    live = read_graph(postgres_connection, graph(*MEMBERS))
    assert set(live.tables) == {"session", "run", "event"}
    assert [edge.parent for edge in live.tables["event"].edges] == ["run"]
    problems = find_problems(postgres_connection, graph(*MEMBERS, Member("run_1_1")))
    assert problems == ["run_1_1: is a partition: declare run, the table that it is a part of"]


def test_other_schemas_are_looked_at(postgres_connection: Connection) -> None:
    make(
        postgres_connection,
        "CREATE SCHEMA chat",
        "CREATE SCHEMA logs",
        "CREATE TABLE chat.session (id text PRIMARY KEY)",
        "CREATE TABLE run (id text PRIMARY KEY, session_id text REFERENCES chat.session (id))",
        "CREATE TABLE logs.run (id text PRIMARY KEY, run_id text REFERENCES public.run (id))",
        "CREATE TABLE logs.line (id text PRIMARY KEY, session_id text)",
    )
    root = Root("chat.session")
    lines = find_problems(postgres_connection, graph(Member("run"), root=root))
    assert [line.partition(":")[0] for line in lines] == ["logs.run", "logs.line.session_id"]
    declared = graph(
        Member("run"),
        Member("logs.run"),
        Member("logs.line", references=(Reference("session_id", "chat.session"),)),
        root=root,
    )
    assert read_graph(postgres_connection, declared).tables["logs.run"].edges[0].parent == "run"
    # the connection's own schema is the one without a name
    make(postgres_connection, "SET LOCAL search_path = logs, public")
    here = graph(
        Member("public.run"),
        Member("run"),
        Member("line", references=(Reference("session_id", "chat.session"),)),
        root=root,
    )
    live = read_graph(postgres_connection, here)
    assert live.tables["run"].edges[0].parent == "public.run"
    assert live.tables["public.run"].edges[0].parent == "chat.session"


def test_a_type_that_nobody_knows_is_no_matter(postgres_connection: Connection) -> None:
    make(
        postgres_connection,
        "CREATE TABLE session (id uuid PRIMARY KEY, place polygon, seen xid8)",
        "CREATE INDEX by_lower ON session (lower(id::text))",
        "CREATE TABLE run (id integer PRIMARY KEY, session_id uuid REFERENCES session (id) ON DELETE SET NULL"
        " (session_id))",
    )
    live = read_graph(postgres_connection, graph(Member("run")))
    assert live.tables["run"].edges[0].on_delete == "SET NULL (session_id)"


# -- over SQLAlchemy's tables ---------------------------------------------------------------------------------------


class HostBase(DeclarativeBase):
    pass


class Conversation(HostBase):
    __tablename__ = "conversations"
    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column("tenant_id")


JOBS = sa.Table(
    "job",
    HostBase.metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("status", sa.Text),
    sa.Column("conversation_id", sa.Text),
    sa.Column("file", sa.Text),
)


def test_over_tables_is_the_same_as_by_names(connection: Connection) -> None:
    over = Graph(
        "chats",
        Root.over(
            Conversation,
            key=Conversation.id,
            tenant=Conversation.tenant,
            active_run=ActiveRun.over(JOBS, ["busy"], key=JOBS.c.number, state=JOBS.c.status),
        ),
        (
            Member.over(
                JOBS,
                references=[Reference.over(JOBS.c.conversation_id, Conversation, Conversation.id)],
                targets=[TargetColumns.over("=openai_eu", "=file", JOBS.c.file)],
            ),
        ),
        (Unrelated.over(JOBS, JOBS.c.status, "an example"),),
    )
    assert over == Graph(
        "chats",
        Root("conversations", "id", "tenant_id", active_run=ActiveRun("job", ("busy",), "number", "status")),
        (
            Member(
                "job",
                references=(Reference("conversation_id", "conversations", "id"),),
                targets=(TargetColumns("=openai_eu", "=file", "file"),),
            ),
        ),
        (Unrelated("job", "status", "an example"),),
    )
    HostBase.metadata.create_all(connection)
    assert find_problems(connection, over) == []


def test_what_is_no_table_or_column_is_refused() -> None:
    with pytest.raises(InvalidGraph, match="is no table, mapped class or table's name"):
        Member.over(Reference)
    with pytest.raises(InvalidGraph, match="is no column, mapped attribute or column's name"):
        Reference.over(sa.text("x"), Conversation)  # type: ignore[arg-type]
