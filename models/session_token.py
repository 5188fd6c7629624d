"""Bearer tokens of the reference host: `expunge_ID_SECRET`.

The secret is 256 random bits, so a plain SHA-256 of it is enough: there is nothing to guess. It is found by its public
id and compared in constant time. An id that does not exist costs the same comparison.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from expunge.models.database import Transaction
from expunge.models.errors import InvalidToken, TokenNotFound
from expunge.models.plain_text import require_plain
from expunge.models.purged import Principal
from expunge.models.sessions import session_token
from expunge.models.types import UtcDateTime

SECRET_BYTES = 32
_TOKEN = re.compile(r"expunge_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_NOBODY = "0" * 64
_TIMES = {"created_at": UtcDateTime(), "expires_at": UtcDateTime(), "revoked_at": UtcDateTime()}
_LONGEST = 200


class TokenScope(StrEnum):
    """What a token lets its bearer do."""

    READ = "session.read"
    WRITE = "session.write"


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who sent a request, and what it may do."""

    token_id: str
    principal: Principal
    scopes: frozenset[str]


def create_token(
    tx: Transaction, *, tenant: str, principal: str, scopes: Sequence[str], expires_at: datetime | None = None
) -> tuple[str, str]:
    """Make a token; gives its id and the token itself, which is stored nowhere. Raises InvalidToken."""
    for name, text in (("tenant", tenant), ("principal", principal)):
        if not text.strip() or len(text) > _LONGEST:
            raise InvalidToken(f"{name}: text of 1 to {_LONGEST} characters")
    require_plain({"tenant": tenant, "principal": principal}, InvalidToken)
    unknown = sorted(set(scopes) - set(TokenScope))
    if unknown or not scopes:
        raise InvalidToken(f"scope: one or more of {', '.join(TokenScope)}")
    token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(SECRET_BYTES)
    tx.connection.execute(
        sa.insert(session_token).values(
            id=token_id,
            secret_sha256=_hash(secret),
            tenant_id=tenant,
            principal_id=principal,
            scopes=" ".join(sorted(set(scopes))),
            expires_at=expires_at,
        )
    )
    return token_id, f"expunge_{token_id}_{secret}"


def find_bearer(tx: Transaction, token: str) -> Bearer | None:
    """Who bears this token; None if there is no such token, or it is revoked or expired (the database's clock)."""
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        return None
    row = tx.first(
        "SELECT secret_sha256, tenant_id, principal_id, scopes FROM session_token"
        " WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now})",
        id=parts[1],
    )
    known = hmac.compare_digest(_hash(parts[2]), _NOBODY if row is None else row.secret_sha256)
    if row is None or not known:
        return None
    return Bearer(parts[1], Principal(row.principal_id, row.tenant_id), frozenset(row.scopes.split()))


def list_tokens(tx: Transaction) -> list[dict[str, Any]]:
    """All tokens, the oldest first, without their secrets' hashes."""
    rows = tx.typed_rows(
        "SELECT id, tenant_id AS tenant, principal_id AS principal, scopes, created_at, expires_at, revoked_at"
        " FROM session_token ORDER BY created_at, id",
        _TIMES,
    )
    return [{**row._mapping, "scopes": row.scopes.split()} for row in rows]


def revoke_token(tx: Transaction, token_id: str) -> None:
    """From the commit on it is worth nothing; again is no error. Raises TokenNotFound."""
    if not tx.run("UPDATE session_token SET revoked_at = coalesce(revoked_at, {now}) WHERE id = :id", id=token_id):
        raise TokenNotFound("no token has this id: `expunge token list` names them")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
