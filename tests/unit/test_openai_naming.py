"""A not-found counts only for exactly the id that it names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.tasks.erasers.openai_naming import names, says_absent

ID = st.from_regex(r"(file-|vs_|conv_|resp_|msg_)[A-Za-z0-9_-]{1,20}", fullmatch=True)
TAIL = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True)


@given(id=ID)
@pytest.mark.parametrize(
    "message",
    [
        "No such File object: {}",
        "No vector store found with id '{}'.",
        "Conversation with id '{}' not found.",
        'Response "{}" not found',
        "{} not found",
        "Not found: {}.",
        "Not found (id={})",
    ],
)
def test_an_id_that_stands_by_itself_is_named(id: str, message: str) -> None:
    assert says_absent({"message": message.format(id)}, id)


@given(id=ID, more=TAIL)
def test_a_longer_id_is_another_one(id: str, more: str) -> None:
    for other in (id + more, more + id, f"{id}.{more}", f"{id}/{more}", f"{more}/{id}", f"{id}@{more}"):
        assert not names(f"No such File object: {other}", id)


@given(id=ID)
@pytest.mark.parametrize(
    "message",
    [
        "Invalid URL (DELETE /v1/files/{})",
        "Unknown request URL: {}",
        "Cannot DELETE /v1/files/{}",
        "No route for {}",
        "{} does not exist or you do not have access to it",
        "You need permission to see {}",
    ],
)
def test_routes_and_permissions_say_nothing_about_the_object(id: str, message: str) -> None:
    assert not says_absent({"message": message.format(id)}, id)


def test_the_param_may_name_it() -> None:
    assert says_absent({"message": "Not found.", "param": "file-1"}, "file-1")
    assert not says_absent({"message": "Not found.", "param": "file-12"}, "file-1")


@pytest.mark.parametrize("word", ["found", "not", "with", "id", "Conversation"])
def test_an_id_that_is_a_plain_word_must_be_quoted(word: str) -> None:
    assert not says_absent({"message": "Conversation with id 'conv_1' not found."}, word)
    assert says_absent({"message": f"Item with id '{word}' not found."}, word)


def test_an_id_may_hold_a_word_about_routes() -> None:
    assert says_absent({"message": "No such File object: file-url-access"}, "file-url-access")
