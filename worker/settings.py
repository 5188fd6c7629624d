"""The settings of expunge.toml and the EXPUNGE_… variables: what there is, with what default. Where they are read from
is sources.py."""

import os
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from expunge.models.database import Database, read_url
from expunge.models.errors import ConfigurationError
from expunge.models.graph import Graph
from expunge.tasks.archive_stores import ArchivePlace, ArchiveStore, check_url, make_store
from expunge.tasks.erasers.contract import AccountOptions
from expunge.tasks.policy import Policy, Webhook
from expunge.worker.graph_settings import ImportedGraph

ENV_PREFIX = "EXPUNGE_"
EMBEDDED_SWEEP_SECONDS = 1.0
"""One process on one machine: nobody else reads the database, so looking often costs little."""
BROKERS = ("memory", "redis", "rediss", "sentinel", "amqp", "amqps", "pyamqp", "sqs")
TABLES = ("accounts", "graphs")
"""Settings that are tables of the file, with keys of their own: not one variable each."""
_DAY = 86400.0


def _no_bool(value: Any) -> Any:
    # TOML's true would become 1
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _distances(value: Any) -> Any:
    """A number, or a list of them, as distances in days."""
    given = value if isinstance(value, (list, tuple)) else [value]
    if isinstance(value, str):  # of the environment: `7` or `[14, 7]`
        given = value.strip("[] ").split(",")
    try:
        days = [float(_no_bool(one)) for one in given]
    except (TypeError, ValueError, OverflowError):
        raise ValueError("must be a number, or a list of numbers") from None
    if not days or not all(0 <= one <= 366 for one in days):
        raise ValueError("must be from 0 to 366 days, or a list of such numbers")
    return tuple(sorted(set(days)))


def _broker(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    if not separator or scheme.lower() not in BROKERS:
        raise ValueError(f"must begin with one of {', '.join(name + '://' for name in BROKERS)}")
    # a broker in memory has no host, and kombu warns when it has to make one up
    return "memory://localhost/" if scheme.lower() == "memory" else url


def _database(url: str) -> str:
    read_url(url)
    return url


def _web(url: str) -> str:
    if not re.match(r"https?://[^/\s]+", url):
        raise ValueError("must begin with https:// (or http://) and name a host")
    return url


Seconds = Annotated[float, BeforeValidator(_no_bool), Field(gt=0, le=366 * _DAY, allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=1_000_000)]
Threads = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=256)]
Port = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=65_535)]
Distances = Annotated[tuple[float, ...], NoDecode, BeforeValidator(_distances)]
LogLevel = Literal["debug", "info", "warning", "error"]


class _Environment(EnvSettingsSource):
    """EXPUNGE_… variables of the settings themselves. Those of accounts need the store's own options (sources.py), and
    graphs have none."""

    def prepare_field_value(self, field_name: str, field: FieldInfo, value: Any, value_is_complex: bool) -> Any:
        if field_name in TABLES:
            return None
        return super().prepare_field_value(field_name, field, value, value_is_complex)


class Settings(BaseSettings):
    """All settings. Variables of the environment win over what the constructor is given, which is the file."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    database_url: Annotated[str, AfterValidator(_database)] = Field(default="sqlite:///expunge.db", repr=False)
    """`sqlite:///FILE` (relative to where the process runs) or `postgresql+psycopg://…`."""
    broker_url: Annotated[str, AfterValidator(_broker)] = Field(default="memory://localhost/", repr=False)
    """`memory://` for one process (`expunge up`), else what Celery's workers share: `redis://…`, `amqp://…`, `sqs://…`."""
    lease_seconds: Seconds = 300.0
    """A mark or settle extends it for the entries it touches; client timeouts are at most a third of it."""
    sweep_seconds: Seconds = 5.0
    """1 in embedded mode, unless it is set."""
    retry_base_seconds: Seconds = 2.0
    """The first retry; doubles, with jitter, up to `retry_max_seconds`."""
    retry_max_seconds: Seconds = 3600.0
    attempts_before_escalation: Count = 15
    """Tries that got no good answer."""
    refusals_before_escalation: Count = 2
    """Tries that the store refused."""
    due_soon_days: Distances = (7.0,)
    """A notice this long before the statutory date of a case with entries left: a number, or a list of them."""
    capabilities_max_age_seconds: Seconds = _DAY
    """What was found out about a store or a bucket is asked again when it is older."""
    threads: Threads = 4
    """Drains that one worker process runs at a time."""
    webhook_url: Annotated[str, AfterValidator(_web)] | None = Field(default=None, repr=False)
    """Where notices are posted."""
    webhook_secret_env: str | None = None
    """The environment variable that holds the secret which signs them."""
    archive_url: Annotated[str, AfterValidator(check_url)] | None = None
    """Where receipts, decisions, tombstones and holds are copied to: `file:///DIRECTORY` or `s3://BUCKET/PREFIX`."""
    archive_endpoint_url: Annotated[str, AfterValidator(_web)] | None = None
    """Of an archive in a bucket: a compatible server."""
    archive_region: str | None = None
    archive_profile: str | None = None
    """Of an archive in a bucket: a profile of the AWS configuration; else credentials come the way boto3 finds them."""
    metrics_port: Port | None = None
    """Where each worker process serves its metrics to Prometheus; without it there are none."""
    metrics_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The address that they are served on."""
    log_level: Annotated[LogLevel, BeforeValidator(lambda text: text.lower() if isinstance(text, str) else text)] = (
        "info"
    )
    accounts: dict[str, AccountOptions] = Field(default_factory=dict)
    """By name, which is also the lane's."""
    graphs: dict[str, InstanceOf[Graph] | InstanceOf[ImportedGraph]] = Field(default_factory=dict)
    """How the host's conversations hang together, by name. To use one: `graph`."""

    @model_validator(mode="after")
    def _together(self) -> "Settings":
        if self.retry_max_seconds < self.retry_base_seconds:
            raise ValueError("retry_max_seconds: must not be less than retry_base_seconds")
        if self.webhook_url and not self.webhook_secret_env:
            raise ValueError(
                "webhook_secret_env: is needed with webhook_url; name the environment variable that holds the secret"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment first; no .env file, which would differ by the folder a worker is started in."""
        return (_Environment(settings_cls), init_settings)

    @property
    def broker_scheme(self) -> str:
        """`redis`, `amqp` …"""
        return self.broker_url.partition("://")[0].lower()

    @property
    def in_memory(self) -> bool:
        """Whether the broker lives in one process only."""
        return self.broker_scheme == "memory"

    def sweep_interval(self, *, embedded: bool = False) -> float:
        """Seconds between two sweeps."""
        if embedded and "sweep_seconds" not in self.model_fields_set:
            return EMBEDDED_SWEEP_SECONDS
        return self.sweep_seconds

    def graph(self, name: str | None = None) -> Graph:
        """The graph of this name; without a name the only one. Raises ConfigurationError, also for a graph that cannot
        be imported."""
        if name is None and len(self.graphs) == 1:
            name = next(iter(self.graphs))
        if name not in self.graphs:
            known = f"known are {', '.join(self.graphs)}" if self.graphs else "they have none: add [graphs.NAME]"
            asked = "graphs: say which one" if name is None and self.graphs else f"graphs.{name or 'NAME'}: is missing"
            raise ConfigurationError(f"{asked} in the settings; {known}")
        found = self.graphs[name]
        return found.load() if isinstance(found, ImportedGraph) else found

    def policy(self, *, embedded: bool = False) -> Policy:
        """The numbers that the tasks need."""
        return Policy(
            lease_seconds=self.lease_seconds,
            sweep_seconds=self.sweep_interval(embedded=embedded),
            retry_base_seconds=self.retry_base_seconds,
            retry_max_seconds=self.retry_max_seconds,
            attempts_before_escalation=self.attempts_before_escalation,
            refusals_before_escalation=self.refusals_before_escalation,
            due_soon_days=self.due_soon_days,
            capabilities_max_age_seconds=self.capabilities_max_age_seconds,
            threads=self.threads,
        )

    def database(self) -> Database:
        """The database, with a connection for every drain, the sweep, and one to spare; nothing is connected yet."""
        return Database.open(self.database_url, pool_size=self.threads + 2)

    def archive(self) -> ArchiveStore | None:
        """Where the archive is, if there is one; nothing is connected."""
        if self.archive_url is None:
            return None
        return make_store(
            ArchivePlace(self.archive_url, self.archive_endpoint_url, self.archive_region, self.archive_profile)
        )

    def webhook(self) -> Webhook | None:
        """Where notices go. Raises ConfigurationError if the secret's variable is not set."""
        if self.webhook_url is None:
            return None
        secret = os.environ.get(self.webhook_secret_env or "", "")
        if not secret:
            raise ConfigurationError(
                f"webhook_secret_env: the environment variable {self.webhook_secret_env} is not set; it holds the "
                "secret that signs the webhooks"
            )
        return Webhook(self.webhook_url, secret)
