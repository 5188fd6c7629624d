"""The demo: a whole case, driven by the product itself over stores on this machine, and what is left in the end."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource
from sqlalchemy.orm import Session

from expunge.models import open_case
from expunge.models.database import Database
from expunge.models.keyset import RowDict
from expunge.models.list_cases import read_case
from expunge.models.list_receipts import ReceiptFilter, list_receipts
from expunge.models.states import SETTLING_STATUSES, CaseState
from expunge.tasks.erasers.registry import eraser_class
from expunge.worker.demo_stores import (
    BUCKET,
    KEY_VARIABLE,
    ORGANIZATION,
    PROJECT,
    REGION,
    TARGETS,
    TENANT,
    Stores,
    demo_stores,
)
from expunge.worker.run import OnLook, prepare, run
from expunge.worker.settings import Settings
from expunge.worker.signals import StopSignals

CASE = "88213"
SUBJECT = "u-88213"
TIMEOUT_SECONDS = 60.0
PURGE_WINDOW_DAYS = 30


class DemoSettings(Settings):
    """Settings that no file and no environment reach: the demo must not find somebody's real database."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what the demo says."""
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class Story:
    """What came of it."""

    case: RowDict
    receipts: list[RowDict]
    keys_left: list[str]
    """Of the bucket: other people's."""

    @property
    def complete(self) -> bool:
        """Whether the case is."""
        return bool(self.case["state"] == CaseState.COMPLETE)

    @property
    def deleted_on(self) -> datetime:
        """When the last target was gone."""
        closing: list[datetime] = [
            row["at"] for row in self.receipts if row["status"] in SETTLING_STATUSES and row["version"] is None
        ]
        return max(closing)

    @property
    def purged_by(self) -> datetime | None:
        """When the providers' documented purges are over."""
        dates = [row["purge_due_at"] for row in self.receipts if row["purge_due_at"] is not None]
        return max(dates, default=None)


@contextmanager
def demo(signals: StopSignals, *, on_ready: Callable[[Stores], None], on_look: OnLook) -> Iterator[Story]:
    """Run the whole story; stores and files are gone at the end. `on_ready` is told before anything is erased."""
    with tempfile.TemporaryDirectory(prefix="expunge-demo-") as directory, demo_stores() as stores:
        on_ready(stores)
        settings = demo_settings(Path(directory), stores)
        database = Database.open(settings.database_url)
        try:
            prepare(database)
            with Session(database.engine) as session, session.begin():
                # a host would delete its own rows here, in the same transaction
                open_case(session, case_id=CASE, subject=SUBJECT, tenant="acme", basis="gdpr", targets=TARGETS)
            run(settings, signals, until_idle=True, timeout=TIMEOUT_SECONDS, on_look=on_look)
            with database.read() as tx:
                case = read_case(tx, CASE)
            receipts = [row for page in list_receipts(database, ReceiptFilter(case=CASE)) for row in page]
            yield Story(case, receipts, stores.keys_left())
        finally:
            database.close()


def demo_settings(directory: Path, stores: Stores) -> DemoSettings:
    """Two accounts, SQLite, a broker in memory, and no patience: a retry comes after a fraction of a second."""
    artifacts = {
        "store": "s3",
        "endpoint_url": stores.s3_url,
        "region": REGION,
        "allow": [f"{BUCKET}/{TENANT}/"],
    }
    openai_eu = {
        "store": "openai",
        "base_url": stores.provider.base_url,
        "api_key_env": KEY_VARIABLE,
        "organization": ORGANIZATION,
        "project": PROJECT,
        "purge_window_days": PURGE_WINDOW_DAYS,
    }
    return DemoSettings(
        database_url=f"sqlite:///{directory / 'demo.db'}",
        lease_seconds=60,
        sweep_seconds=0.2,
        retry_base_seconds=0.3,
        retry_max_seconds=5,
        log_level="error",
        accounts={
            "artifacts": eraser_class("s3").options.model_validate(artifacts),
            "openai_eu": eraser_class("openai").options.model_validate(openai_eu),
        },
    )
