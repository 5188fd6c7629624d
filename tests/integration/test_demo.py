"""expunge demo: the whole story, with nothing to configure."""

import json
import os

import pytest
from commands import run

from expunge.models.list_receipts import RECEIPT_COLUMNS
from expunge.worker.demo_stores import demo_stores


@pytest.fixture
def told(tmp_path):
    """Runs the demo in an empty folder, and sees that it leaves nothing behind."""

    def told(*arguments: str, **more: str):
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        done = run("expunge", "demo", *arguments, cwd=tmp_path, TMPDIR=str(temporary), **more)
        assert list(tmp_path.iterdir()) == [temporary]
        assert list(temporary.iterdir()) == []
        return done

    return told


def test_receipts_for_scripts(told) -> None:
    done = told("--json")
    assert done.stderr == ""
    receipts = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(list(row) == list(RECEIPT_COLUMNS) for row in receipts)
    assert {row["case_id"] for row in receipts} == {"88213"}

    closing = {
        row["locator"]: row["status"] for row in receipts if row["version"] is None and row["status"] != "failed"
    }
    assert closing.pop("file-neverexisted88213") == "already_absent"
    assert set(closing.values()) == {"deleted"}
    assert {row["kind"] for row in receipts} == {
        "file",
        "vector_store",
        "vector_store_file",
        "conversation",
        "conversation_item",
        "object",
        "prefix",
    }
    second = [(row["status"], row["http_status"]) for row in receipts if row["locator"] == "file-invoice88213"]
    assert second == [("failed", 503), ("failed", 503), ("deleted", 200)]
    versions = [row for row in receipts if row["version"]]
    assert len(versions) == len({(row["locator"], row["version"]) for row in versions}) == 12
    assert all(row["request_id"] for row in receipts)
    assert all(row["purge_due_at"] for row in receipts if row["store"] == "openai" and row["status"] == "deleted")


def test_the_story_for_people(told) -> None:
    out = told().stdout
    assert "case 88213 is complete" in out
    assert "file-invoice88213" in out
    assert "uploads/u-8821/portrait.jpg" in out
    assert "u-88213/" not in out.split("other people's:")[1].split("To the subject")[0]
    letter = out.split("To the subject:")[1]
    assert "We deleted the data that we held about you (case 88213) on " in letter
    assert "completes by " in letter


def test_no_setting_of_this_machine_reaches_it(told) -> None:
    told(
        "--json",
        EXPUNGE_DATABASE_URL="postgresql+psycopg://127.0.0.1:1/production",
        EXPUNGE_BROKER_URL="redis://127.0.0.1:1",
        EXPUNGE_CONFIG="/no/such/file",
        AWS_ENDPOINT_URL="http://127.0.0.1:1",
        AWS_PROFILE="production",
        HTTP_PROXY="http://127.0.0.1:1",
        HTTPS_PROXY="http://127.0.0.1:1",
        OPENAI_BASE_URL="http://127.0.0.1:1",
    )


def test_without_its_extra_it_says_what_to_install(tmp_path) -> None:
    (tmp_path / "moto").mkdir()
    (tmp_path / "moto" / "__init__.py").write_text("raise ImportError('not installed')")
    done = run("expunge", "demo", cwd=tmp_path, code=1, PYTHONPATH=os.fspath(tmp_path))
    assert done.stderr.strip() == "Error: the demo needs a local S3 server: pip install 'expunge[demo]'"


def test_twice_in_one_process() -> None:
    for _ in range(2):
        with demo_stores() as stores:
            assert stores.keys_left()
