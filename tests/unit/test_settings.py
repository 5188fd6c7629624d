"""Settings: what is read from where, and what is said about wrong ones."""

import os
import typing

import pytest

from expunge.models.database import Database
from expunge.models.errors import ConfigurationError
from expunge.tasks.erasers.s3_options import S3Options
from expunge.worker.settings import Settings
from expunge.worker.sources import load_settings


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("EXPUNGE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def load(tmp_path):
    """Loads settings from the text of a file."""

    def load(text: str = ""):
        path = tmp_path / "given.toml"
        path.write_text(text)
        return load_settings(path)

    return load


S3_TABLE = '[accounts.artifacts]\nstore = "s3"\nregion = "eu-central-1"\n'
S3 = S3_TABLE + 'allow = ["chat-artifacts/tenants/"]\n'
LIBRARY = ("Input", "String", "Tuple", "Value", "validation", " valid ", "unable to parse", "should")
"""Words of what reads the settings, not of who wrote them."""


def refusal(load, text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(text)
    return str(caught.value)


def test_defaults_are_those_of_the_documentation() -> None:
    settings = load_settings()
    assert settings.database_url == "sqlite:///expunge.db"
    assert settings.in_memory
    assert (settings.lease_seconds, settings.sweep_seconds) == (300, 5)
    assert (settings.retry_base_seconds, settings.retry_max_seconds) == (2, 3600)
    assert (settings.attempts_before_escalation, settings.refusals_before_escalation) == (15, 2)
    assert settings.accounts == {}


def test_sweep_is_quicker_in_embedded_mode_unless_it_is_set(load) -> None:
    assert load().policy(embedded=True).sweep_seconds == 1
    assert load().policy().sweep_seconds == 5
    assert load("sweep_seconds = 7").policy(embedded=True).sweep_seconds == 7


def test_the_default_file_may_be_absent_and_a_named_one_may_not(tmp_path, monkeypatch) -> None:
    load_settings()
    (tmp_path / "expunge.toml").write_text("threads = 9")
    assert load_settings().threads == 9
    with pytest.raises(ConfigurationError, match=r"elsewhere\.toml: there is no such file"):
        load_settings("elsewhere.toml")
    monkeypatch.setenv("EXPUNGE_CONFIG", "elsewhere.toml")
    with pytest.raises(ConfigurationError, match="there is no such file"):
        load_settings()


def test_an_account_is_read_by_its_own_stores_options(load) -> None:
    account = load(S3).accounts["artifacts"]
    assert isinstance(account, S3Options)
    assert account.allow == ("chat-artifacts/tenants/",)


def test_the_environment_wins(load, monkeypatch) -> None:
    monkeypatch.setenv("EXPUNGE_LEASE_SECONDS", "60")
    monkeypatch.setenv("EXPUNGE_ACCOUNTS__ARTIFACTS__REGION", "us-east-2")
    monkeypatch.setenv("EXPUNGE_ACCOUNTS__ARTIFACTS__CONCURRENCY", "2")
    monkeypatch.setenv("EXPUNGE_ACCOUNTS__ARTIFACTS__ALLOW", '["other/"]')
    settings = load("lease_seconds = 100\n" + S3)
    account = settings.accounts["artifacts"]
    assert settings.lease_seconds == 60
    assert isinstance(account, S3Options)
    assert (account.region, account.concurrency, account.allow) == ("us-east-2", 2, ("other/",))


def test_an_empty_variable_counts_as_not_set(load, monkeypatch) -> None:
    monkeypatch.setenv("EXPUNGE_BROKER_URL", "")
    monkeypatch.setenv("EXPUNGE_ACCOUNTS__ARTIFACTS__REGION", "")
    assert load(S3).accounts["artifacts"].region == "eu-central-1"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lease_second = 3", "lease_second: is not a setting; did you mean lease_seconds?"),
        ("lease_seconds = 0", "lease_seconds: must be greater than 0"),
        ("lease_seconds = inf", "lease_seconds: must be"),
        ("lease_seconds = true", "lease_seconds: must be a number"),
        ("attempts_before_escalation = 0", "attempts_before_escalation: must be greater than or equal to 1"),
        ("retry_base_seconds = 9\nretry_max_seconds = 8", "retry_max_seconds: must not be less"),
        ('broker_url = "kafka://x"', "broker_url: must begin with one of memory://"),
        ('database_url = "expunge.db"', "database_url: must look like sqlite:///FILE"),
        ('webhook_url = "ftp://x"', "webhook_url: must begin with https://"),
        ('webhook_url = "https://x"', "webhook_secret_env: is needed with webhook_url"),
        ('log_level = "loud"', "log_level: must be"),
        ("accounts = 3", "accounts: must be tables"),
        ("[accounts]\nx = 3", "accounts.x: must be a table"),
        ('[accounts.Big]\nstore = "s3"', "accounts.Big: an account's name is"),
        (f'[accounts.{"a" * 65}]\nstore = "s3"', "at most 64"),
        ("[accounts.x]", "accounts.x.store: is missing"),
        ('[accounts.x]\nstore = "tape"', "accounts.x.store: store 'tape' is not known; known are openai, s3"),
        ('[accounts.x]\nstore = "s3"', "accounts.x.allow: is missing"),
        (
            S3 + 'purge_windows = { file = { days = 30, source = "https://example.com/p" } }',
            "accounts.artifacts.purge_windows.file: s3 has no such kind; it has object, prefix",
        ),
        (S3 + "colour = 1", "accounts.artifacts.colour: is not a setting"),
        (S3 + "concurrency = 0", "accounts.artifacts.concurrency: must be greater than or equal to 1"),
        (S3_TABLE + "allow = []", "accounts.artifacts.allow: must not be empty"),
        (S3_TABLE + 'allow = "bucket"', 'accounts.artifacts.allow: must be a list, as in ["one", "two"]'),
        (S3_TABLE + 'allow = ["b", "", 3]', "accounts.artifacts.allow: item 2 must not be empty"),
        (S3_TABLE + 'allow = ["b", "", 3]', "accounts.artifacts.allow: item 3 must be text in quotes"),
        (S3 + "endpoint_url = 3", "accounts.artifacts.endpoint_url: must be text in quotes"),
        (S3 + 'partial_prefixes = "maybe"', "accounts.artifacts.partial_prefixes: must be true or false"),
        (S3 + 'expected_bucket_owner = "12"', "accounts.artifacts.expected_bucket_owner: must match"),
        (S3 + "keys_per_call = 1.5", "accounts.artifacts.keys_per_call: must be a whole number"),
        (S3 + 'addressing_style = "x"', "accounts.artifacts.addressing_style: must be 'auto', 'path' or 'virtual'"),
        ('[accounts.ai]\nstore = "openai"\nproject = ""', "accounts.ai.project: must not be empty"),
        ('threads = "many"', "threads: must be a whole number"),
        ('sweep_seconds = "often"', "sweep_seconds: must be a number"),
        ("lease_seconds = 3\nthreads = = 4", "is not TOML: Invalid value (at line 2"),
    ],
)
def test_every_wrong_field_is_named(load, text, said) -> None:
    told = refusal(load, text)
    assert said in told
    assert not [word for word in LIBRARY if word in told]


def replicas(told: str, *, allow: str = '["us", "u/1/"]', more: str = "", theirs: str = "") -> str:
    """An account `artifacts` with buckets b and u/1/, another one `us`, and one at another store."""
    return (
        f'{S3_TABLE}allow = ["b", "u/1/"]\n{more}\n[[accounts.artifacts.replicas]]\n{told}\n'
        f'[accounts.us]\nstore = "s3"\nallow = {allow}\n{theirs}\n'
        '[accounts.ai]\nstore = "openai"\nproject = "proj_1"\n'
    )


US = 'account = "us"\nbuckets = {b = "us"}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (replicas(""), "accounts.artifacts.replicas.account: is missing"),
        (replicas('account = "uz"'), "accounts.artifacts.replicas: there is no account uz; add [accounts.uz]"),
        (replicas('account = "artifacts"'), "replicas: artifacts cannot be its own replica"),
        (replicas('account = "ai"'), 'replicas: ai is not an account with store = "s3"'),
        (replicas('account = "us"'), "replicas: b/ is outside what the `allow` of us names: copies of b could not"),
        (replicas(US, allow='["us/1/", "u"]'), "replicas: us/ is outside what the `allow` of us names"),
        (replicas(US, allow='["us", "u/1/2/"]'), "replicas: u/1/ is outside what the `allow` of us names"),
        (replicas('account = "us"\nbuckets = {b = "us", x = "y"}'), "replicas: x is in no `allow` of this account"),
        (replicas('account = "us"\nbuckets = {b = "us/1"}'), "accounts.artifacts.replicas.buckets.b: "),
        (replicas(US + "\n[[accounts.artifacts.replicas]]\n" + US), "replicas: us is named twice"),
        (replicas(US, more="partial_prefixes = true"), "replicas: us needs partial_prefixes as well"),
    ],
)
def test_a_replica_must_be_able_to_erase_every_copy(load, text, said) -> None:
    assert said in refusal(load, text)


def test_replicas_that_can(load) -> None:
    settings = load(replicas(US, more="partial_prefixes = true", theirs="partial_prefixes = true"))
    artifacts = settings.accounts["artifacts"]
    assert [target.locator for target in artifacts.copies_of("object", "b/k/l")] == ["us/k/l"]
    assert [target.locator for target in artifacts.copies_of("prefix", "u/1/")] == ["u/1/"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("hunter2", "must look like sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"),
        ("", "must look like sqlite:///FILE"),
        ("postgresql://u:hunter2@host:port/d", "must look like sqlite:///FILE"),
        ("mysql://u:hunter2@host/d", "; mysql is not supported"),
        ("postgresql+asyncpg://u:hunter2@host/d", "; postgresql+asyncpg is not supported"),
        ("sqlite+aiosqlite:///hunter2.db", "; sqlite+aiosqlite is not supported"),
        ("sqlite://hunter2.db", "must have three slashes, sqlite:///FILE"),
    ],
)
def test_a_database_that_cannot_be_used_is_told_with_the_file_that_names_it(load, tmp_path, monkeypatch, url, said):
    told = refusal(load, f'database_url = "{url}"')
    assert told.startswith(f"{tmp_path / 'given.toml'}: database_url: ")
    assert said in told
    assert "hunter2" not in told
    if url:
        monkeypatch.setenv("EXPUNGE_DATABASE_URL", url)
        told = refusal(load, "")
        assert told.startswith(f"{tmp_path / 'given.toml'}: database_url (EXPUNGE_DATABASE_URL): ")
        with pytest.raises(ConfigurationError, match=r"^database_url: must") as caught:
            Database.open(url)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///x.db",
        "sqlite+pysqlite:////tmp/x.db",
        "postgres://u@h/d",
        "postgresql://u:p@h:1/d",
        "postgresql+psycopg://u:p@h/d?sslmode=require",
        "postgresql+psycopg:///d?host=/run/postgresql",
    ],
)
def test_a_database_that_can_be_used(load, url):
    settings = load(f'database_url = "{url}"')
    assert settings.database_url == url
    opened = Database.open(url)
    assert opened.dialect == ("sqlite" if url.startswith("sqlite") else "postgresql")
    opened.close()


def test_all_wrong_fields_are_told_at_once(load, monkeypatch) -> None:
    monkeypatch.setenv("EXPUNGE_THREADS", "many")
    said = refusal(load, "lease_seconds = -1\nno_such = 1\n[accounts.x]")
    for name in ("lease_seconds:", "no_such:", "accounts.x.store:", "threads (EXPUNGE_THREADS):"):
        assert name in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("EXPUNGE_LEASE_SECOND", "did you mean EXPUNGE_LEASE_SECONDS?"),
        ("EXPUNGE_ACCOUNTS", "is not a setting"),
        ("EXPUNGE_ACCOUNTS__ARCHIVE__REGION", "the file has no account 'archive'"),
        ("EXPUNGE_ACCOUNTS__ARTIFACTS", "name an option of the account"),
        ("EXPUNGE_ACCOUNTS__ARTIFACTS__COLOUR", "accounts.artifacts.colour: is not a setting"),
        ("EXPUNGE_ACCOUNTS__ARTIFACTS__ALLOW", "must be JSON"),
        ("EXPUNGE_ACCOUNTS__ARTIFACTS__CONCURRENCY", "concurrency (EXPUNGE_ACCOUNTS__ARTIFACTS__CONCURRENCY): must be"),
    ],
)
def test_unknown_and_wrong_variables_are_errors(load, monkeypatch, variable, said) -> None:
    monkeypatch.setenv(variable, "x")
    assert said in refusal(load, S3)


def test_variables_that_hold_secrets_are_named_by_the_settings(load, monkeypatch) -> None:
    monkeypatch.setenv("EXPUNGE_HOOK_SECRET", "s3cret")
    monkeypatch.setenv("EXPUNGE_MY_KEY", "sk-x")
    settings = load(
        'webhook_url = "https://x/hook"\nwebhook_secret_env = "EXPUNGE_HOOK_SECRET"\n'
        '[accounts.ai]\nstore = "openai"\napi_key_env = "EXPUNGE_MY_KEY"\n'
    )
    webhook = settings.webhook()
    assert webhook is not None
    assert (webhook.url, webhook.secret) == ("https://x/hook", "s3cret")
    monkeypatch.delenv("EXPUNGE_HOOK_SECRET")
    with pytest.raises(ConfigurationError, match="EXPUNGE_HOOK_SECRET is not set"):
        settings.webhook()


def test_no_value_is_ever_repeated(load, monkeypatch) -> None:
    monkeypatch.setenv("EXPUNGE_WEBHOOK_URL", "hunter2")
    said = refusal(
        load,
        'database_url = "hunter2"\nbroker_url = "hunter2"\nlease_seconds = "hunter2"\n'
        '[accounts.ai]\nstore = "openai"\nbase_url = "hunter2"\nconcurrency = "hunter2"\n',
    )
    assert "hunter2" not in said
    assert "hunter2" not in repr(load_settings_with_urls(load, monkeypatch))


def load_settings_with_urls(load, monkeypatch):
    monkeypatch.delenv("EXPUNGE_WEBHOOK_URL")
    return load('database_url = "postgresql+psycopg://u:hunter2@h/d"\nbroker_url = "redis://:hunter2@h"')


NUMBERS = [
    name
    for name, field in Settings.model_fields.items()
    if {int, float} & {field.annotation, *typing.get_args(field.annotation)}
]
ZERO_IS_FINE = {"due_soon_days"}


def test_the_numbers_are_found() -> None:
    assert {"lease_seconds", "sweep_seconds", "due_soon_days", "threads"} <= set(NUMBERS)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("text", ["nan", "-nan", "inf", "-inf", "1e400", "-1", "0", "true"])
def test_a_number_is_finite_and_not_below_its_least(load, monkeypatch, name, text) -> None:
    if text == "0" and name in ZERO_IS_FINE:
        load(f"{name} = 0")
        return
    assert f"{name}: must be" in refusal(load, f"{name} = {text}")
    monkeypatch.setenv(f"EXPUNGE_{name.upper()}", text)
    assert f"{name} (EXPUNGE_{name.upper()}): must be" in refusal(load, "")
