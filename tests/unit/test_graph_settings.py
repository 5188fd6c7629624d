"""[graphs.NAME]: what models/graph.py declares, written in TOML; what is wrong, by its path."""

import sys

import pytest

from expunge.models.errors import ConfigurationError
from expunge.models.graph import ActiveRun, Graph, Member, Reference, Root, Rule, TargetColumns, Unrelated
from expunge.worker.sources import load_settings

WHOLE = """
[graphs.sessions.root]
table = "session"
key = "uid"
tenant = "tenant_id"
owner = "principal_id"
version = "version"
active_run = { table = "run", states = ["queued", "running"], key = "n", state = "status" }
targets = [{ account = "=openai_eu", kind = "=conversation", locator = "provider_id" }]

[[graphs.sessions.members]]
table = "run"

[[graphs.sessions.members]]
table = "artifact"
rule = "delete"
references = [{ column = "made_in", to = "session" }, { column = "run_n", to = "run", to_column = "n" }]
targets = [{ account = "account", kind = "kind", locator = "locator" }]

[[graphs.sessions.members]]
table = "skill_revision"
rule = "detach"

[[graphs.sessions.members]]
table = "invoice"
rule = "keep"
why = "bookkeeping"

[[graphs.sessions.unrelated]]
table = "cookie"
column = "session_id"
why = "of the browser"
"""
HOST = """
from expunge.models.graph import Graph, Root
GRAPH = Graph("chats", Root("chat"))
NONE = 7
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def load(text):
        (tmp_path / "expunge.toml").write_text(text)
        return load_settings("expunge.toml")

    return load


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A module of the host's, in the folder from which the command runs."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "host_of_test.py").write_text(HOST)
    yield "host_of_test"
    sys.modules.pop("host_of_test", None)


def test_a_graph_is_what_the_tables_say(load):
    assert load(WHOLE).graph("sessions") == Graph(
        "sessions",
        Root(
            "session",
            "uid",
            "tenant_id",
            "principal_id",
            "version",
            ActiveRun("run", ("queued", "running"), "n", "status"),
            (TargetColumns("=openai_eu", "=conversation", "provider_id"),),
        ),
        (
            Member("run"),
            Member(
                "artifact",
                references=(Reference("made_in", "session"), Reference("run_n", "run", "n")),
                targets=(TargetColumns("account", "kind", "locator"),),
            ),
            Member("skill_revision", Rule.DETACH),
            Member("invoice", Rule.KEEP, "bookkeeping"),
        ),
        (Unrelated("cookie", "session_id", "of the browser"),),
    )


def test_the_only_graph_needs_no_name(load):
    assert load(WHOLE).graph().name == "sessions"
    two = load(WHOLE + '[graphs.chats.root]\ntable = "chat"\n')
    assert two.graph("chats") == Graph("chats", Root("chat"))
    with pytest.raises(ConfigurationError, match="graphs: say which one in the settings; known are sessions, chats"):
        two.graph()
    with pytest.raises(
        ConfigurationError, match=r"graphs\.chat: is missing in the settings; known are sessions, chats"
    ):
        two.graph("chat")
    with pytest.raises(ConfigurationError, match=r"graphs\.NAME: is missing in the settings; they have none"):
        load("").graph()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("graphs = 3", "graphs: must be tables: [graphs.NAME]"),
        ("[graphs]\nsessions = 3", "graphs.sessions: must be a table: [graphs.sessions]"),
        ("[graphs.sessions]", "graphs.sessions.root: is missing"),
        ("[graphs.sessions]\nroot = 3", "graphs.sessions.root: must be a table"),
        ("[graphs.sessions.root]", "graphs.sessions.root.table: is missing"),
        (
            WHOLE.replace("tenant =", "tennant ="),
            "graphs.sessions.root.tennant: is not a setting; did you mean tenant?",
        ),
        (
            WHOLE.replace("sessions.unrelated", "sessions.unrelatd"),
            "graphs.sessions.unrelatd: is not a setting; did you mean unrelated?",
        ),
        (
            WHOLE.replace('rule = "detach"', 'rul = "detach"'),
            "graphs.sessions.members[skill_revision].rul: is not a setting; did you mean rule?",
        ),
        (
            WHOLE.replace("to_column =", "to_colum ="),
            "graphs.sessions.members[artifact].references[2].to_colum: is not a setting; did you mean to_column?",
        ),
        (
            WHOLE.replace("state =", "stat ="),
            "graphs.sessions.root.active_run.stat: is not a setting; did you mean state?",
        ),
        (
            WHOLE.replace('account = "account", ', ""),
            "graphs.sessions.members[artifact].targets[1].account: is missing",
        ),
        (
            WHOLE.replace('"detach"', '"forget"'),
            "graphs.sessions.members[skill_revision].rule: must be 'delete', 'detach' or 'keep'",
        ),
        (WHOLE.replace('table = "run"\n\n', "\n"), "graphs.sessions.members[1].table: is missing"),
        (
            WHOLE.replace('["queued", "running"]', '["queued", 2]'),
            "graphs.sessions.root.active_run.states[2]: must be text in quotes",
        ),
        (
            WHOLE.replace('["queued", "running"]', '"queued"'),
            'graphs.sessions.root.active_run.states: must be a list, as in ["one", "two"]',
        ),
        (
            '[graphs.sessions]\nname = "other"\nroot = { table = "session" }',
            "graphs.sessions.name: is not a setting: the table's own name is the graph's",
        ),
        ('[graphs.sessions]\nimport = "host"', 'graphs.sessions.import: must be text like "package.module:GRAPH"'),
        ("[graphs.sessions]\nimport = 3", 'graphs.sessions.import: must be text like "package.module:GRAPH"'),
        (
            '[graphs.sessions]\nimport = "host:GRAPH"\nroot = { table = "session" }',
            "graphs.sessions: has import and also root: a graph is declared in one place",
        ),
    ],
)
def test_what_is_wrong_is_told_by_its_path(load, text, said):
    with pytest.raises(ConfigurationError) as raised:
        load(text)
    assert said in str(raised.value)
    assert "Input" not in str(raised.value)


def test_a_host_names_the_graph_that_it_declared(load, host):
    settings = load(f'[graphs.chats]\nimport = "{host}:GRAPH"')
    # nobody has asked for it yet
    assert host not in sys.modules
    assert settings.graph("chats") == Graph("chats", Root("chat"))


@pytest.mark.parametrize(
    ("name", "place", "said"),
    [
        (
            "chats",
            "no_such_module:GRAPH",
            "graphs.chats.import: no_such_module:GRAPH cannot be imported: ModuleNotFound",
        ),
        ("chats", "host_of_test:GRAF", "graphs.chats.import: host_of_test:GRAF cannot be imported: AttributeError"),
        ("chats", "host_of_test:NONE", "graphs.chats.import: host_of_test:NONE is no Graph of expunge.models.graph"),
        ("talks", "host_of_test:GRAPH", "host_of_test:GRAPH has the name 'chats': write [graphs.chats]"),
    ],
)
def test_a_graph_that_cannot_be_imported(load, host, name, place, said):
    settings = load(f'[graphs.{name}]\nimport = "{place}"')
    with pytest.raises(ConfigurationError) as raised:
        settings.graph(name)
    assert said in str(raised.value)


def test_the_environment_has_no_graphs(load, monkeypatch):
    monkeypatch.setenv("EXPUNGE_GRAPHS__SESSIONS__ROOT__TABLE", "session")
    with pytest.raises(ConfigurationError, match="EXPUNGE_GRAPHS__SESSIONS__ROOT__TABLE: is not a setting"):
        load("")
