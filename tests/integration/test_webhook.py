"""Notices on their way out: signed, repeated until they are accepted, and never lost by a crash."""

import hashlib
import hmac
import json

import pytest
from doubles.running import Bench
from servers.webhook import receiver

from expunge.tasks.outcomes import Outcome
from expunge.tasks.runtime import Webhook

SECRET = "a secret of the receiver"


@pytest.fixture
def hook():
    with receiver() as running:
        yield running


@pytest.fixture
def bench(database, hook):
    bench = Bench(database, attempts_before_escalation=1)
    bench.runtime.webhook = Webhook(hook.url + "/hook", SECRET, timeout_seconds=5.0)
    return bench


def escalate_one(bench):
    bench.store.put("b/secret-name")
    bench.store.always["b/secret-name"] = Outcome.ERROR
    bench.open("b/secret-name")
    bench.drain()


def test_an_escalation_is_posted_once_and_signed(bench, hook):
    escalate_one(bench)
    assert bench.sweep().notices == 1
    assert bench.sweep().notices == 0
    ((path, headers, body),) = hook.got
    assert (path, headers["content-type"]) == ("/hook", "application/json")
    parts = dict(part.split("=", 1) for part in headers["expunge-signature"].split(","))
    signed = hmac.new(SECRET.encode(), f"{parts['t']}.".encode() + body, hashlib.sha256).hexdigest()
    assert parts["v1"] == signed
    document = json.loads(body)
    assert document["kind"] == "entry.escalated"
    assert (document["case_id"], document["entry_id"], document["account"]) == ("c1", bench.entry().id, "mem")
    assert b"secret-name" not in body
    assert bench.notices()[0].sent_at is not None


@pytest.mark.parametrize("status", [500, 404, 302, 307])
def test_what_is_not_accepted_is_sent_again_later(bench, hook, status):
    hook.answers.extend([status, status])
    escalate_one(bench)
    for _ in range(2):
        assert bench.sweep().notices == 0
        assert bench.sweep().notices == 0  # not before it is due again
        bench.later(4000)
    assert bench.sweep().notices == 1
    assert [path for path, _, _ in hook.got] == ["/hook"] * 3  # a redirect is not followed
    ids = {json.loads(body)["id"] for _, _, body in hook.got}
    assert len(ids) == 1


def test_a_receiver_that_is_away_stops_nothing(bench, hook):
    bench.runtime.webhook = Webhook("http://127.0.0.1:9/", SECRET, timeout_seconds=1.0)
    escalate_one(bench)
    assert bench.sweep().notices == 0
    assert bench.notices()[0].sent_at is None
    bench.runtime.webhook = Webhook(hook.url, SECRET)
    bench.later(4000)
    assert bench.sweep().notices == 1


def test_a_sweep_that_dies_while_sending_loses_none(bench, hook, monkeypatch):
    from expunge.tasks import webhook

    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    escalate_one(bench)
    with monkeypatch.context() as patch:
        patch.setattr(webhook, "post", killed)
        with pytest.raises(Killed):
            bench.sweep()
    assert bench.sweep().notices == 0
    bench.later(4000)
    assert bench.sweep().notices == 1
    assert len(hook.got) == 1


def test_without_a_webhook_notices_wait(bench, hook):
    bench.runtime.webhook = None
    escalate_one(bench)
    assert bench.sweep().notices == 0
    assert len(bench.notices()) == 1
    assert hook.got == []
