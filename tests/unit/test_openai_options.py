"""Settings and targets of an openai account, without a server."""

import pytest
from pydantic import ValidationError
from servers.provider import account, entry, look

from expunge.tasks.erasers.contract import Answer, NotSent
from expunge.tasks.erasers.openai import OpenAIEraser, OpenAIOptions
from expunge.tasks.erasers.registry import eraser_class
from expunge.tasks.outcomes import Outcome

NOWHERE = "http://127.0.0.1:9/v1"


def test_the_registry_finds_it() -> None:
    assert eraser_class("openai") is OpenAIEraser
    assert {kind.name for kind in OpenAIEraser.kinds} >= {
        "file",
        "vector_store",
        "vector_store_file",
        "conversation",
        "response",
        "conversation_item",
    }


@pytest.mark.parametrize(
    "url",
    [
        "api.openai.com",
        "ftp://api.openai.com",
        "https://user:secret@api.openai.com/v1",
        "https://api.openai.com/v1?key=x",
        "https://api.openai.com/v1#x",
        "https:///v1",
        "https://a b/v1",
        "",
    ],
)
def test_a_base_url_is_plain(url: str) -> None:
    with pytest.raises(ValidationError):
        OpenAIOptions(base_url=url)


def test_a_base_url_loses_its_last_slash() -> None:
    assert OpenAIOptions(base_url="https://eu.api.openai.com/v1/").base_url == "https://eu.api.openai.com/v1"


@pytest.mark.parametrize(
    "wrong", [{"api_key": "sk-x"}, {"organization": ""}, {"project": ""}, {"store": "s3"}, {"api_key_env": "A B"}]
)
def test_unknown_or_empty_settings_are_errors(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        OpenAIOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "locator", "refused"),
    [
        ("file", "file-1", False),
        ("file", "vs_1", True),
        ("file", "file-1/../vs_1", True),
        ("file", "file-1?x=1", True),
        ("file", "file-1\n", True),
        ("vector_store", "vs_1", False),
        ("conversation", "conv_1", False),
        ("conversation", "conv_1/msg_1", True),
        ("conversation_item", "conv_1/msg_1", False),
        ("conversation_item", "conv_1/../msg_1", True),
        ("conversation_item", "conv_1", True),
        ("response", "resp_1", False),
        ("container", "cntr_1", False),
        ("container", "cntr_1/cfile_1", True),
        ("container_file", "cntr_1/cfile_1", False),
        ("container_file", "cntr_1/file-1", True),
        ("thread", "thread_1", False),
        ("thread", "thread_1/../x", True),
        ("assistant", "asst_1", False),
        ("assistant", "assistant-1", True),
        ("chat_completion", "chatcmpl-1", False),
        ("chat_completion", "chatcmpl_1", True),
        ("object", "bucket/key", True),
    ],
)
def test_what_can_never_be_tried(kind: str, locator: str, refused: bool) -> None:
    with account(NOWHERE, key=None) as eraser:
        complaint = eraser.refuse(kind, locator)
        assert (complaint is not None) is refused
        assert complaint is None or locator not in complaint
        looked = look(eraser, entry(kind, locator))
    if refused:
        assert [(each.reason, each.whole_account) for each in looked.not_sent] == [(complaint, False)]
        assert not looked.answers
        assert not looked.calls


@pytest.mark.parametrize("kind_and_locator", [("file", "file-1"), ("conversation", "conv_1")])
@pytest.mark.parametrize(
    ("key", "error"),
    [(None, "MissingCredentials"), ("", "MissingCredentials"), (" \n", "MissingCredentials"),
     ("sk-ü", "MalformedCredentials"), ("sk-a sk-b", "MalformedCredentials")],
)  # fmt: skip
def test_a_key_that_is_none_stops_the_account(key: str | None, error: str, kind_and_locator: tuple[str, str]) -> None:
    with account(NOWHERE, key=key) as eraser:
        looked = look(eraser, entry(*kind_and_locator))
        check = eraser.check()
    assert [(each.reason, each.whole_account) for each in looked.not_sent] == [(error, True)]
    assert not looked.answers
    assert not looked.calls
    assert [(line.name, line.ok) for line in check] == [("credentials", False)]
    assert "EXPUNGE_TEST_OPENAI_KEY" in check[0].text


def test_another_accounts_key_is_not_used() -> None:
    with account(NOWHERE, key=None, environment={"OPENAI_API_KEY": "sk-demo", "OPENAI_ADMIN_KEY": "sk-x"}) as eraser:
        (not_sent,) = look(eraser, entry("file", "file-1")).not_sent
    assert not_sent.reason == "MissingCredentials"


@pytest.mark.parametrize(
    ("options", "environment", "reason"),
    [
        ({"organization": "org-ü"}, {}, "UnicodeEncodeError"),
        ({"organization": "org\n1"}, {}, "IllegalHeaderError"),
        ({"project": " proj_1"}, {}, "IllegalHeaderError"),
        ({}, {"OPENAI_CUSTOM_HEADERS": "X A: 1"}, "IllegalHeaderError"),
        ({}, {"OPENAI_CUSTOM_HEADERS": "X-A: ü"}, "UnicodeEncodeError"),
        ({}, {"SSL_CERT_FILE": "/no/such/file"}, "FileNotFoundError"),
        ({}, {"HTTP_PROXY": "nonsense://x"}, "ValueError"),
    ],
)
def test_a_request_that_cannot_be_made_is_not_sent(
    options: dict[str, str], environment: dict[str, str], reason: str
) -> None:
    """Of everything but the key that goes into a request, or into what sends it."""
    with account(NOWHERE, environment=environment, **options) as eraser:
        looked = look(eraser, entry("file", "file-1"))
        came = [*looked.not_sent, *(each for call in looked.calls for each in call.send(call.entry_ids))]
        check = eraser.check()
    assert came == [NotSent(came[0].entry_id, reason, whole_account=True)]
    assert [(line.name, line.ok) for line in check] == [("answer", False)]
    assert reason in check[0].text


def test_a_call_takes_a_third_of_the_lease_at_most() -> None:
    assert OpenAIEraser("ai", OpenAIOptions(timeout_seconds=500), lease_seconds=60).timeout == 20
    assert OpenAIEraser("ai", OpenAIOptions(timeout_seconds=5), lease_seconds=60).timeout == 5


def test_nobody_there_is_no_answer() -> None:
    with account(NOWHERE) as eraser:
        (call,) = look(eraser, entry("file", "file-1")).calls
        (answer,) = call.send(call.entry_ids)
        assert isinstance(answer, Answer)
        check = eraser.check()
    assert (answer.outcome, answer.error, answer.request_id) == (Outcome.NO_ANSWER, "ConnectError", None)
    assert [(line.name, line.ok) for line in check] == [("credentials", True), ("answer", False)]
