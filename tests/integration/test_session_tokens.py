"""Bearer tokens: what is stored, who is found by them, and the command that makes them."""

import hashlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from host import Host

from expunge.models.database import Database
from expunge.models.errors import InvalidToken, TokenNotFound
from expunge.models.purged import Principal
from expunge.models.session_token import create_token, find_bearer, list_tokens, revoke_token
from expunge.worker.cli import main

READ = ["session.read"]


def test_a_token_says_who_bears_it_and_is_stored_as_a_hash_only(host_database: Database) -> None:
    host = Host(host_database)
    token = host.token("acme", "ann", READ)
    with host_database.read() as tx:
        bearer = find_bearer(tx, token)
    assert bearer is not None
    assert (bearer.principal, bearer.scopes) == (Principal("ann", "acme"), frozenset(READ))
    (row,) = host.sql("SELECT * FROM session_token")
    secret = token.split("_", 2)[2]
    assert row.secret_sha256 == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in json.dumps(list(row), default=str)
    assert len(secret) == 43  # 256 bits, base64


def test_nobody_else_is_found(host_database: Database) -> None:
    host = Host(host_database)
    token, other = host.token("acme", "ann", READ), host.token("acme", "bob", READ)
    id_, secret = token.split("_", 2)[1:]
    wrong = [
        "",
        "expunge_",
        token[:-1],
        token + "A",
        token.upper(),
        f"expunge_{id_}_{other.split('_', 2)[2]}",
        f"expunge_{'0' * 16}_{secret}",
        f"expunge_{id_}_{hashlib.sha256(secret.encode()).hexdigest()[:43]}",
        f"{token}\n",
        "é" * 68,
    ]
    with host_database.read() as tx:
        assert [find_bearer(tx, text) for text in wrong] == [None] * len(wrong)
        assert find_bearer(tx, other) is not None


def test_a_revoked_or_expired_token_is_worth_nothing(host_database: Database) -> None:
    host = Host(host_database)
    now = datetime.now(UTC)
    lasting = host.token(expires_at=now + timedelta(hours=1))
    over = host.token(expires_at=now - timedelta(seconds=1))
    revoked = host.token()
    with host_database.begin() as tx:
        revoke_token(tx, revoked.split("_")[1])
        first = [row["revoked_at"] for row in list_tokens(tx)]
        revoke_token(tx, revoked.split("_")[1])
        assert [row["revoked_at"] for row in list_tokens(tx)] == first
        assert [find_bearer(tx, token) is not None for token in (lasting, over, revoked)] == [True, False, False]
        with pytest.raises(TokenNotFound):
            revoke_token(tx, "0" * 16)


@pytest.mark.parametrize(
    ("tenant", "principal", "scopes"),
    [
        ("", "p", READ),
        ("t", " ", READ),
        ("t", "p", []),
        ("t", "p", ["session.all"]),
        ("t\n", "p", READ),
        ("t", "p" * 201, READ),
    ],
)
def test_a_wrong_token_is_refused_before_it_is_made(
    host_database: Database, tenant: str, principal: str, scopes: list[str]
) -> None:
    host = Host(host_database)
    with host_database.begin() as tx, pytest.raises(InvalidToken):
        create_token(tx, tenant=tenant, principal=principal, scopes=scopes)
    assert host.sql("SELECT id FROM session_token") == []


def test_the_command(sqlite_url: str) -> None:
    def expunge(*arguments: str, code: int = 0) -> str:
        ran = CliRunner().invoke(main, arguments, env={"EXPUNGE_DATABASE_URL": sqlite_url})
        assert ran.exit_code == code, ran.output
        return ran.stdout if code == 0 else ran.stderr

    who = ("--tenant", "acme", "--principal", "ann")
    assert "migrate --with-sessions" in expunge("token", "create", *who, "--scope", "session.read", code=1)
    expunge("migrate", "--with-sessions")
    scopes = ("--scope", "session.read", "--scope", "session.write", "--scope", "session.read")
    made = json.loads(expunge("token", "create", *who, *scopes, "--json"))
    assert made["scopes"] == ["session.read", "session.write"]
    plain = expunge("token", "create", *who, "--scope", "session.read", "--expires-at", "2020-01-01").strip()
    listed = [json.loads(line) for line in expunge("token", "list", "--json").splitlines()]
    assert [row["id"] for row in listed] == [made["id"], plain.split("_")[1]]
    assert (listed[0]["tenant"], listed[0]["principal"], listed[1]["expires_at"]) == (
        "acme",
        "ann",
        "2020-01-01T00:00:00.000Z",
    )
    shown = expunge("token", "list")
    assert made["id"] in shown
    assert made["token"].split("_", 2)[2] not in shown + json.dumps(listed)
    expunge("token", "revoke", made["id"])
    assert json.loads(expunge("token", "list", "--json").splitlines()[0])["revoked_at"]
    assert "no token has this id" in expunge("token", "revoke", "0000000000000000", code=1)
