"""Objects that the host tracks, and how they get into a case."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from doubles.running import Bench
from sqlalchemy.orm import Session
from waiting import wait_for

from expunge.models import Target, bell, open_case, track
from expunge.models.errors import CaseConflict, InvalidCase, InvalidTarget
from expunge.models.purge_tables import InventoryItem, Tombstone
from expunge.models.tombstones import case_id_of

WHEN = datetime(2027, 5, 1, 12, tzinfo=UTC)


class Host(Bench):
    """Short words for what these tests do."""

    def track(self, locator, subject="s", conversation=None, *, tenant="t", **more):
        with self.database.begin() as tx:
            return track(
                tx.connection,
                **{
                    "account": "mem",
                    "kind": "object",
                    "locator": f"b/{locator}",
                    "subject": subject,
                    "tenant": tenant,
                    "conversation": conversation,
                    **more,
                },
            )

    def erase(self, subject="s", conversation=None, *, tenant="t", **more):
        with self.database.begin() as tx:
            return open_case(
                tx.connection, subject=subject, tenant=tenant, conversation=conversation, inventory=True, **more
            )

    def bury(self, conversation, tenant="t", graph="chat"):
        with self.database.begin() as tx:
            tx.connection.execute(
                sa.insert(Tombstone.__table__).values(
                    graph=graph, conversation=conversation, tenant=tenant, principal="owner"
                )
            )

    def items(self):
        with Session(self.database.engine) as session:
            return session.scalars(sa.select(InventoryItem).order_by(InventoryItem.id)).all()

    def kept(self):
        """Locators in the inventory with the case that left them."""
        return {(i.locator.removeprefix("b/"), i.subject, i.conversation): i.left_by for i in self.items()}

    def queued(self, case=None):
        where = {} if case is None else {"case_id": case}
        return sorted(entry.locator.removeprefix("b/") for entry in self.entries(**where))


@pytest.fixture
def host(database):
    return Host(database)


def test_the_hosts_transaction_decides(host):
    with Session(host.database.engine) as session:
        tracked = track(session, account="mem", kind="object", locator="b/1", subject="s", conversation="c")
        assert (tracked.id > 0, tracked.case_id) == (True, None)
        session.rollback()
    assert host.items() == []
    with Session(host.database.engine) as session, session.begin():
        track(session, account="mem", kind="object", locator="b/1", subject="s", created_at=WHEN, region="eu")
    (item,) = host.items()
    assert (item.tenant, item.subject, item.conversation) == (None, "s", None)
    assert (item.locator, item.region, item.created_at, item.left_by) == ("b/1", "eu", WHEN, None)


def test_again_says_more_about_the_same_row(host):
    first = host.track("1", region="eu", created_at=WHEN)
    origin = host.track("2")
    again = host.track("1", expires_at=WHEN, derived_from=origin.id, created_at=WHEN + timedelta(days=9))
    assert again.id == first.id
    item = host.items()[0]
    assert (item.region, item.expires_at, item.derived_from, item.created_at) == ("eu", WHEN, origin.id, WHEN)
    assert host.track("1", region="us").id == first.id
    assert host.items()[0].region == "us"
    # another owner has a claim of its own
    others = {host.track("1", *owner).id for owner in (("s", "c"), ("s2",))} | {host.track("1", tenant=None).id}
    assert len(others | {first.id}) == 4


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"account": "No"}, "account"),
        ({"kind": "tape"}, "kind"),
        ({"locator": "no-key"}, "locator"),
        ({"locator": None}, "locator"),
        ({"subject": ""}, "subject"),
        ({"subject": None}, "subject"),
        ({"subject": 7}, "subject"),
        ({"subject": "a\x1bb"}, "subject: holds"),
        ({"tenant": ""}, "tenant"),
        ({"conversation": "x" * 1001}, "conversation"),
        ({"conversation": "a\u202eb"}, "conversation: holds"),
        ({"region": "a\nb"}, "region: holds"),
        ({"created_at": datetime(2026, 1, 1)}, "created_at"),  # noqa: DTZ001
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"expires_at": datetime(9999, 1, 1, tzinfo=UTC)}, "expires_at"),
        ({"derived_from": 0}, "derived_from"),
        ({"derived_from": "1"}, "derived_from"),
        ({"derived_from": True}, "derived_from"),
        ({"derived_from": 2**63}, "derived_from"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(host, wrong, said):
    values = {"account": "mem", "kind": "object", "locator": "b/1", "subject": "s", **wrong}
    with host.database.begin() as tx, pytest.raises(InvalidTarget, match=said):
        track(tx.connection, **values)
    assert host.items() == []


def test_an_object_is_not_its_own_origin(host):
    first = host.track("1", region="eu")
    with pytest.raises(InvalidTarget, match="derived_from"):
        host.track("1", region="us", derived_from=first.id)
    assert host.items()[0].region == "eu"


def test_everything_of_the_subject_goes(host):
    host.track("1")
    host.track("2", conversation="c")
    host.track("3", subject="s2")
    host.track("4", tenant="t2")
    host.track("5", tenant=None)
    opened = host.erase(case_id="c1", targets=[Target("mem", "object", "b/2"), Target("mem", "object", "b/6")])
    assert (opened.created, opened.added, opened.known, opened.shared) == (True, 3, 1, 0)
    assert opened.accounts == {"mem"}
    assert host.queued("c1") == ["1", "2", "6"]
    assert set(host.kept()) == {("3", "s2", None), ("4", "s", None), ("5", "s", None)}
    assert (host.case("c1").scope, host.case("c1").completed_at) == ("subject", None)
    host.erase(case_id="c2", tenant=None)
    assert host.queued("c2") == ["5"]


def test_one_conversation_goes_whoever_it_was(host):
    host.track("1", conversation="c")
    host.track("2", "s2", "c")
    host.track("3", conversation="d")
    host.track("4")
    host.track("5", conversation="c", tenant="t2")
    opened = host.erase(conversation="c", case_id="c1")
    assert (opened.added, opened.shared, host.case("c1").scope) == (2, 0, "conversation")
    assert host.queued() == ["1", "2"]
    assert len(host.items()) == 3


def test_a_rollback_leaves_the_inventory(host):
    host.track("1")
    with pytest.raises(ZeroDivisionError), host.database.begin() as tx:
        open_case(tx.connection, subject="s", tenant="t", inventory=True)
        raise ZeroDivisionError
    assert (host.queued(), len(host.items())) == ([], 1)


def test_the_bell_rings_for_the_lanes(host):
    rung = []
    bell.hang(rung.append)
    host.track("1", account="one")
    host.track("2", account="two")
    assert rung == []
    host.erase()
    wait_for(lambda: {"one", "two"} <= set().union(*rung), what="the ring")


def test_what_is_shared_stays_until_its_last_owner_goes(host):
    host.track("1")
    host.track("1", "s2")
    host.track("1", "s3", "c")
    host.track("2")
    opened = host.erase(case_id="c1")
    assert (opened.added, opened.shared, host.queued()) == (1, 1, ["2"])
    assert host.kept() == {("1", "s", None): "c1", ("1", "s2", None): None, ("1", "s3", "c"): None}
    assert host.erase("s2", case_id="c2").shared == 1
    assert host.case("c2").nothing_found
    assert host.case("c2").completed_at is not None
    opened = host.erase("s3", conversation="c", case_id="c3")
    assert (opened.added, opened.shared) == (1, 0)
    assert host.queued("c3") == ["1"]
    assert host.kept() == {}


def test_a_subjects_own_claim_outlives_the_conversation(host):
    host.track("1", conversation="c")
    host.track("1")
    host.track("2", conversation="c")
    host.track("2", conversation="d")
    assert host.erase(conversation="c", case_id="c1").shared == 2
    assert host.erase(case_id="c2").added == 2
    assert host.kept() == {}


def test_a_row_of_a_purged_conversation_is_nobodys_living_claim(host):
    host.track("1")
    host.track("1", "s2", "c")
    host.bury("c")
    assert host.erase().added == 1
    assert host.kept() == {}


def test_a_tombstone_of_another_tenant_says_nothing(host):
    host.track("1")
    host.track("1", "s2", "c")
    host.bury("c", tenant="t2")
    assert host.erase().shared == 1


def test_what_was_given_up_and_is_tracked_again_is_living(host):
    host.track("1")
    host.track("1", "s2")
    host.erase(case_id="c1")
    assert host.kept()[("1", "s", None)] == "c1"
    host.track("1")
    assert host.kept()[("1", "s", None)] is None
    assert host.erase("s2", case_id="c2").shared == 1


def test_what_was_made_of_it_goes_with_it(host):
    origin = host.track("file", conversation="c")
    index = host.track("index", derived_from=origin.id)
    host.track("copy", derived_from=index.id)
    host.track("other")
    assert host.erase(conversation="c", case_id="c1").added == 3
    assert host.queued() == ["copy", "file", "index"]
    assert set(host.kept()) == {("other", "s", None)}


@pytest.mark.parametrize("owner", [("s2", None), ("s", "d")])
def test_what_a_living_owner_made_of_it_is_shared(host, owner):
    origin = host.track("file", conversation="c")
    index = host.track("index", *owner, derived_from=origin.id)
    host.track("copy", *owner, derived_from=index.id)
    opened = host.erase(conversation="c", case_id="c1")
    assert (opened.added, opened.shared, host.queued()) == (1, 1, ["file"])
    assert host.kept() == {("index", *owner): None, ("copy", *owner): None}


def test_what_was_made_of_a_shared_object_waits_with_it(host):
    origin = host.track("file", conversation="c")
    host.track("file", "s2")
    host.track("index", derived_from=origin.id)
    assert (host.erase(conversation="c", case_id="c1").added, host.queued()) == (0, [])
    assert host.erase("s2", case_id="c2").added == 2
    assert host.queued("c2") == ["file", "index"]


def test_objects_made_of_each_other_end(host):
    one = host.track("1", conversation="c")
    two = host.track("2", derived_from=one.id)
    host.track("1", conversation="c", derived_from=two.id)
    assert host.erase(conversation="c").added == 2
    assert host.items() == []


def test_a_derived_object_may_free_the_one_it_shares(host):
    """`x` is the conversation's and, as something made of `file`, the subject's: both claims end together."""
    origin = host.track("file", conversation="c")
    host.track("x", conversation="c")
    host.track("x", derived_from=origin.id)
    assert (host.erase(conversation="c").shared, host.queued()) == (0, ["file", "x"])


def test_nothing_is_tracked(host):
    with pytest.raises(InvalidCase, match="nothing is tracked of this subject"):
        host.erase(case_id="c1")
    with pytest.raises(InvalidCase, match="nothing is tracked of this conversation"):
        host.erase(conversation="c", case_id="c1")
    with host.database.read() as tx:
        assert tx.rows("SELECT id FROM erasure_case") == []
    opened = host.erase(case_id="c1", nothing_found=True)
    assert (opened.created, opened.added, host.case().nothing_found) == (True, 0, True)
    opened = host.erase(case_id="c1", nothing_found=True)
    assert (opened.created, opened.added) == (False, 0)
    host.track("1")
    opened = host.erase(case_id="c1", nothing_found=True)
    assert (opened.added, host.case().nothing_found, host.case().completed_at) == (1, False, None)
    assert host.erase(case_id="c1").added == 0


def test_targets_of_the_call_and_nothing_found_go_together_with_the_inventory(host):
    opened = host.erase(case_id="c1", nothing_found=True, targets=[Target("mem", "object", "b/1")])
    assert (opened.added, host.case().nothing_found) == (1, False)


def test_a_case_says_whose_inventory(host):
    host.erase(conversation="c", case_id="c1", nothing_found=True)
    with pytest.raises(CaseConflict, match="another conversation"):
        host.erase(case_id="c1", nothing_found=True)
    with pytest.raises(InvalidCase, match="scope subject"):
        host.erase(conversation="c", scope="subject", nothing_found=True)


def test_a_later_object_joins_the_open_case_of_its_subject(host):
    host.track("1")
    host.erase(case_id="c1")
    joined = host.track("2", conversation="d")
    assert joined.case_id == "c1"
    assert host.track("3", tenant="t2").case_id is None
    assert host.track("4", "s2").case_id is None
    assert host.queued("c1") == ["1", "2"]
    assert set(host.kept()) == {("3", "s", None), ("4", "s2", None)}
    host.store.put("b/1", "b/2")
    host.drain()
    assert host.case("c1").completed_at is not None
    # a living person's next upload is not erased by itself
    assert host.track("5").case_id is None
    assert host.queued() == []


def test_an_open_case_of_targets_takes_nothing_by_itself(host):
    host.track("1", "other")
    host.open("b/9", case="c1", tenant="t")
    assert host.track("2").case_id is None


def test_a_later_object_that_is_shared_stays(host):
    host.track("1")
    host.erase(case_id="c1")
    host.track("2", "s2")
    joined = host.track("2")
    assert joined.case_id is None
    assert host.kept() == {("2", "s2", None): None, ("2", "s", None): "c1"}


def test_a_later_object_of_a_purged_conversation_reopens_its_case(host):
    case = case_id_of("chat", "c")
    host.track("1", conversation="c")
    host.erase("owner", conversation="c", case_id=case)
    host.bury("c")
    host.store.put("b/1")
    host.drain()
    assert host.case(case).completed_at is not None
    assert host.track("3", "whoever", "c", tenant="t2").case_id is None
    assert host.track("4", "whoever", "d").case_id is None
    joined = host.track("2", "whoever", "c")
    assert joined.case_id == case
    assert (host.queued(case), host.case(case).completed_at) == (["2"], None)
    # the very same object anew is erased anew
    host.store.put("b/1", "b/2")
    assert host.track("1", conversation="c").case_id == case
    host.drain()
    assert host.case(case).completed_at is not None
    assert len(host.receipts(locator="b/1", status="deleted")) == 2


def test_a_purged_conversation_whose_case_is_gone_gets_it_back(host):
    host.bury("c", tenant=None)
    joined = host.track("1", "s", "c", tenant=None)
    case = host.case(joined.case_id)
    assert joined.case_id == case_id_of("chat", "c")
    assert (case.subject, case.scope, case.conversation, case.completed_at) == ("owner", "conversation", "c", None)
    assert host.queued(joined.case_id) == ["1"]


def test_a_shared_object_alone_leaves_that_case_complete(host):
    host.bury("c")
    host.track("1", "s2")
    assert host.track("1", "s", "c").case_id is None
    case = host.case(case_id_of("chat", "c"))
    assert case.nothing_found
    assert host.kept()[("1", "s", "c")] == case.id


def test_an_object_made_anew_while_its_entry_is_being_worked_on_is_kept(host):
    """The look or the call that is under way may have been before the object was there again."""
    host.track("1")
    host.erase(case_id="c1")
    with host.database.begin() as tx:
        tx.run("UPDATE erasure_outbox SET state = 'leased', lease_token = :t, lease_until = {now}", t="0" * 32)
    assert host.track("1").case_id is None
    assert host.kept() == {("1", "s", None): None}
    with host.database.begin() as tx:
        tx.run("UPDATE erasure_outbox SET state = 'ready', lease_token = NULL, lease_until = NULL")
    assert host.track("1").case_id == "c1"
    assert (host.kept(), host.queued()) == ({}, ["1"])


def test_a_hold_keeps_what_was_tracked(host):
    from expunge.models.holds import place_hold

    host.track("1")
    host.erase(case_id="c1")
    with host.database.begin() as tx:
        place_hold(tx, subject="s", by="me", why="a matter")
    host.track("2")
    host.store.put("b/1", "b/2")
    host.drain()
    assert [entry.state for entry in host.entries()] == ["held", "held"]
    assert host.receipts() == []


def test_plain_sql_tracks_too(host):
    with host.database.begin() as tx:
        tx.run(
            "INSERT INTO erasure_inventory (tenant, subject, account, kind, locator)"
            " VALUES ('t', 's', 'mem', 'object', 'b/1')"
        )
    assert host.erase().added == 1
