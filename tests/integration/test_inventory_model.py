"""Random tracks, cases, purges, shares and derivations, against a model in plain Python."""

import os
from dataclasses import dataclass, field
from itertools import count

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from expunge.models import open_case, track
from expunge.models.list_inventory import InventoryFilter, View, list_inventory
from expunge.models.purge_tables import InventoryItem, Tombstone
from expunge.models.tables import OutboxEntry
from expunge.models.tombstones import case_id_of

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))
_examples = count()

OBJECTS = st.sampled_from(["1", "2", "3"])
OWNERS = st.sampled_from(
    [
        (None, "s", None),
        (None, "s", "c"),
        (None, "s", "d"),
        (None, "u", None),
        (None, "u", "c"),
        ("t", "s", None),
        ("t", "s", "c"),
    ]
)
STEPS = st.one_of(
    st.tuples(st.just("track"), OBJECTS, OWNERS, st.integers(0, 5)),
    st.tuples(st.just("track"), OBJECTS, OWNERS, st.integers(0, 5)),
    st.tuples(st.just("erase"), OWNERS, st.booleans()),
    st.tuples(st.just("purge"), OWNERS),
    st.tuples(st.just("finish"), st.integers(0, 9)),
)


@dataclass
class Claim:
    id: int
    what: str
    owner: tuple
    origin: int | None
    left_by: str | None = None


@dataclass
class Case:
    owner: tuple
    scope: str
    entries: set = field(default_factory=set)
    is_open: bool = True


class Model:
    """What should be in the inventory and in each case's outbox."""

    def __init__(self):
        self.claims = {}
        self.cases = {}
        self.tombstones = set()

    def is_dead(self, claim):
        tenant, _, conversation = claim.owner
        return claim.left_by is not None or (tenant, conversation) in self.tombstones

    def covered(self, owner):
        tenant, subject, conversation = owner
        for claim in self.claims.values():
            if claim.owner[0] == tenant and (
                claim.owner[1] == subject if conversation is None else claim.owner[2] == conversation
            ):
                yield claim

    def take(self, case, claims):
        """Gives how many objects are shared."""
        for claim in claims:
            claim.left_by = case
        while True:
            living = {claim.what for claim in self.claims.values() if not self.is_dead(claim)}
            ending = [claim for claim in self.claims.values() if claim.left_by == case]
            free = {claim.what for claim in ending} - living
            free_ids = {claim.id: claim for claim in ending if claim.what in free}
            more = [
                claim
                for claim in self.claims.values()
                if claim.left_by != case and (claim.what in free or self._goes_with(claim, free_ids))
            ]
            if not more:
                break
            for claim in more:
                claim.left_by = case
        shared = {claim.what for claim in ending if claim.what in living}
        shared |= {c.what for c in self.claims.values() if c.origin in free_ids and not self.is_dead(c)}
        self.claims = {key: claim for key, claim in self.claims.items() if claim.what not in free}
        self.cases[case].entries |= free
        self.cases[case].is_open = bool(self.cases[case].entries) or (not shared and self.cases[case].is_open)
        return len(shared)

    def _goes_with(self, claim, free_ids):
        origin = free_ids.get(claim.origin)
        if origin is None:
            return False
        return self.is_dead(claim) or (claim.owner[2] is None and claim.owner[:2] == origin.owner[:2])

    def joins(self, owner):
        tenant, subject, conversation = owner
        for name, case in self.cases.items():
            if case.scope == "subject" and case.is_open and case.owner[:2] == (tenant, subject):
                return name
        return None if (tenant, conversation) not in self.tombstones else "purge"


class World:
    """The model and the database, side by side. Names are of this example alone: tombstones cannot be removed."""

    def __init__(self, database):
        self.database, self.model = database, Model()
        self.prefix = f"{next(_examples)}-"
        self.ids = [None]

    def named(self, owner):
        tenant, subject, conversation = owner
        names = {"tenant": tenant, "subject": self.prefix + subject}
        return {**names, "conversation": None if conversation is None else self.prefix + conversation}

    def purge_case(self, owner):
        return case_id_of("chat", f"{self.prefix}{owner[2]}")

    def track(self, what, owner, origin):
        origin = self.ids[-1 - origin] if origin < len(self.ids) else None
        with self.database.begin() as tx:
            locator = f"b/{self.prefix}{what}"
            key = (what, owner)
            old = self.model.claims.get(key)
            if old is not None and old.id == origin:
                origin = None
            tracked = track(
                tx.connection, account="mem", kind="object", locator=locator, derived_from=origin, **self.named(owner)
            )
        self.ids.append(tracked.id)
        if old is not None:
            assert tracked.id == old.id
            old.left_by = None
            old.origin = old.origin if origin is None else origin
        claim = self.model.claims[key] = old or Claim(tracked.id, what, owner, origin)
        joins = self.model.joins(owner)
        if joins == "purge":
            joins = self.purge_case(owner)
        if joins is None:
            assert tracked.case_id is None
            return
        self.model.take(joins, [claim])
        assert tracked.case_id == (None if key in self.model.claims else joins)

    def erase(self, owner, again):
        case = f"{self.prefix}case-{len(self.model.cases)}"
        same = [name for name, known in self.model.cases.items() if known.owner == owner and "case-" in name]
        if again and same:
            case = same[0]
        self._open(case, owner)

    def _open(self, case, owner):
        created = case not in self.model.cases
        self.model.cases.setdefault(case, Case(owner, "subject" if owner[2] is None else "conversation"))
        with self.database.begin() as tx:
            opened = open_case(tx.connection, case_id=case, inventory=True, nothing_found=True, **self.named(owner))
            before = len(self.model.cases[case].entries)
            shared = self.model.take(case, list(self.model.covered(owner)))
            known = self.model.cases[case]
            if not known.entries:
                known.is_open = False
            assert (opened.created, opened.shared) == (created, shared)
            assert opened.added == len(known.entries) - before
            if case == self.purge_case(owner):
                tx.connection.execute(
                    sa.insert(Tombstone.__table__).values(
                        graph="chat",
                        conversation=self.prefix + owner[2],
                        tenant=owner[0],
                        principal=self.prefix + owner[1],
                    )
                )
                self.model.tombstones.add((owner[0], owner[2]))

    def purge(self, owner):
        # one graph has one conversation of a name, whatever its tenant
        if owner[2] is not None and not any(conversation == owner[2] for _, conversation in self.model.tombstones):
            self._open(self.purge_case(owner), owner)

    def finish(self, number):
        """The workers have erased everything of a case."""
        if not self.model.cases:
            return
        case = sorted(self.model.cases)[number % len(self.model.cases)]
        with self.database.begin() as tx:
            tx.run("DELETE FROM erasure_outbox WHERE case_id = :case", case=case)
            tx.run("UPDATE erasure_case SET completed_at = {now} WHERE id = :case", case=case)
        self.model.cases[case].entries = set()
        self.model.cases[case].is_open = False

    def check(self):
        with Session(self.database.engine) as session:
            mine = InventoryItem.subject.startswith(self.prefix)
            rows = session.scalars(sa.select(InventoryItem).where(mine)).all()
            entries = session.execute(sa.select(OutboxEntry.case_id, OutboxEntry.locator)).all()
        assert {row.id: row.left_by for row in rows} == {c.id: c.left_by for c in self.model.claims.values()}
        queued = {(case, locator) for case, locator in entries if locator.startswith(f"b/{self.prefix}")}
        assert queued == {
            (name, f"b/{self.prefix}{what}") for name, case in self.model.cases.items() for what in case.entries
        }
        self.check_listings({row.id for row in rows})

    def check_listings(self, ids):
        def listed(view):
            pages = list_inventory(self.database, InventoryFilter(view=view), size=3)
            return {row["id"] for page in pages for row in page} & ids

        claims = self.model.claims.values()
        queued = set().union(*(case.entries for case in self.model.cases.values()))
        complete = {
            case.owner[:2] for case in self.model.cases.values() if case.scope == "subject" and not case.is_open
        }
        assert listed(View.SHARED) == {
            c.id for c in claims if c.left_by or (c.origin is not None and c.origin not in ids)
        }
        assert listed(View.AFTER_ERASURE) == {c.id for c in claims if not c.left_by and c.owner[:2] in complete}
        assert listed(View.ORPHANED) == {
            c.id
            for c in claims
            if not c.left_by and (c.owner[0], c.owner[2]) in self.model.tombstones and c.what not in queued
        }


@settings(
    deadline=None,
    max_examples=25 * ROUNDS,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=3, max_size=14))
def test_the_database_does_what_the_model_says(database, steps):
    world = World(database)
    for verb, *arguments in steps:
        getattr(world, verb)(*arguments)
        world.check()
