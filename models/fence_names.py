"""The names of the fence's parts, and how many buckets there are."""

import hashlib

BUCKETS = 512
"""Advisory locks that all conversations share: a bulk writer of any number of conversations takes no more. A power of
two."""
_LONGEST = 63
"""Bytes of a name on PostgreSQL; a longer one is cut, and may be another's then."""


def function_name(graph: str, table: str) -> str:
    """The trigger function of one table (PostgreSQL)."""
    return _name("erasure_fence", graph, table)


def trigger_name(graph: str, table: str, when: str = "") -> str:
    """The trigger of one table. PostgreSQL fires in the order of names, and this one has to be the last."""
    return _name("zz_erasure_fence", graph, table, when)


def _name(*parts: str) -> str:
    readable = "_".join(filter(None, parts)).replace(".", "_")
    # a_b of c and a of b_c are not the same
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
    cut = readable.encode()[: _LONGEST - 9].decode(errors="ignore")
    return f"{cut}_{digest}"
