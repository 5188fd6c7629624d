"""What the processes of a fleet share: a broker, and the settings file that all of them read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def url_of(broker: Any) -> str:
    """Of a Valkey server."""
    return f"redis://127.0.0.1:{broker.port}/0"


def write_settings(
    path: Path, *, database: str, broker: Any, accounts: Mapping[str, Mapping[str, Any]], **settings: Any
) -> None:
    """Write them as TOML, by their names. A value is written as in JSON, which TOML reads the same way."""
    tables = [("", {"database_url": database, "broker_url": url_of(broker), **settings})]
    tables += [(f"[accounts.{name}]\n", options) for name, options in accounts.items()]
    path.write_text(
        "\n".join(
            head + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()) for head, table in tables
        )
    )
