"""The listing algorithm against servers that list in any order, with any page, and with faults."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from expunge.tasks.erasers.s3_client import Facts
from expunge.tasks.erasers.s3_pages import Markers, Page, Version
from expunge.tasks.erasers.s3_presence import Finding, survey_objects, survey_versions

FACTS = Facts("List", datetime.now(UTC), datetime.now(UTC))
Order = Callable[[str], object]

ORDERS: dict[str, Order] = {
    "bytes": lambda key: key.encode(),
    "walk": lambda key: key.replace("/", "\0"),
    "utf-16": lambda key: key.encode("utf-16-be"),
}
KEYS = st.text("ab/.-~\uff5e\U0001f600", min_size=1, max_size=5)


class FakeObjects:
    """A bucket without versions."""

    def __init__(self, keys: Iterable[str], order: Order, page: int = 1000, *, ignores_start: bool = False) -> None:
        self.keys = sorted(set(keys), key=order)  # type: ignore[arg-type]
        self.order = order
        self.page = page
        self.ignores_start = ignores_start
        self.calls = 0

    def after(self, start: str | None, limit: int) -> Page:
        keys = self.keys
        if start is not None and not self.ignores_start:
            keys = [key for key in keys if self.order(key) > self.order(start)]  # type: ignore[operator]
        return self._answer(keys, limit, after=start)

    def exactly(self, key: str) -> Page:
        return self._answer([each for each in self.keys if each.startswith(key)], 1, prefix=key)

    def _answer(self, keys: list[str], limit: int, *, after: str | None = None, prefix: str | None = None) -> Page:
        self.calls += 1
        page = keys[: min(limit, self.page)]
        return Page(FACTS, {key: [] for key in page}, (page,), len(keys) > len(page), True, after=after, prefix=prefix)


class FakeVersions:
    """A bucket in which every key has two versions and perhaps a marker."""

    def __init__(self, keys: Iterable[str], order: Order, page: int) -> None:
        self.items = [
            (key, Version(f"{key}-{number}", number == 2))
            for key in sorted(set(keys), key=order)  # type: ignore[arg-type]
            for number in range(2 + len(key) % 2)
        ]
        self.page = page

    def under(self, prefix: str, markers: Markers | None, limit: int) -> Page:
        items = [item for item in self.items if item[0].startswith(prefix)]
        if markers is not None:
            ids = [(key, version.id) for key, version in items]
            items = items[ids.index((markers[0], markers[1] or "")) + 1 :]
        return self._answer(items, limit, prefix, markers)

    def exactly(self, key: str) -> Page:
        return self._answer([item for item in self.items if item[0].startswith(key)], 1000, key, None)

    def _answer(self, items: list[tuple[str, Version]], limit: int, prefix: str, markers: Markers | None) -> Page:
        page = items[: min(limit, self.page)]
        found: dict[str, list[Version]] = {}
        for key, version in page:
            found.setdefault(key, []).append(version)
        runs = tuple([key for key, version in page if version.is_marker is marker] for marker in (False, True))
        truncated = len(items) > len(page)
        last = (page[-1][0], page[-1][1].id) if truncated else None
        after = markers[0] if markers else None
        return Page(FACTS, found, runs, truncated, True, after=after, prefix=prefix, next_markers=last)


def always() -> bool:
    return True


@given(st.sets(KEYS), st.sets(KEYS, min_size=1), st.sampled_from(sorted(ORDERS)), st.integers(1, 6), st.booleans())
def test_present_and_absent_are_the_truth(
    there: set[str], wanted: set[str], order: str, page: int, ignores_start: bool
) -> None:
    pages = FakeObjects(there, ORDERS[order], page, ignores_start=ignores_start)
    findings = list(survey_objects(wanted, pages, always))
    assert sorted(finding.key for finding in findings) == sorted(wanted)
    for finding in findings:
        assert finding.present is (finding.key in there)


@given(st.sets(KEYS), st.sets(KEYS, min_size=1), st.sampled_from(sorted(ORDERS)), st.integers(1, 9))
def test_versions_are_found_and_absences_true(there: set[str], wanted: set[str], order: str, page: int) -> None:
    pages = FakeVersions(there, ORDERS[order], page)
    findings = list(survey_versions(wanted, pages, always))
    assert sorted(finding.key for finding in findings) == sorted(wanted)
    for finding in findings:
        assert finding.present is (finding.key in there)
        assert bool(finding.versions) is (finding.key in there)
        assert all(version.id.rpartition("-")[0] == finding.key for version in finding.versions)


def run(keys: list[str], wanted: list[str]) -> tuple[FakeObjects, list[Finding]]:
    pages = FakeObjects(keys, ORDERS["bytes"])
    return pages, list(survey_objects(wanted, pages, always))


def test_dense_keys_cost_one_listing_a_thousand() -> None:
    keys = [f"tenants/7/{number:05d}" for number in range(10_000)]
    pages, findings = run([*keys, "tenants/6/x", "tenants/8/x"], keys[3000:5000])
    assert pages.calls == 2
    assert all(finding.present for finding in findings)


def test_numbers_without_padding_are_dense_too() -> None:
    keys = [f"doc-{number}" for number in range(10_000)]
    pages, _ = run(keys, keys)
    assert pages.calls <= 11


def test_sparse_keys_cost_one_look_each() -> None:
    keys = [f"doc-{number}" for number in range(50_000)]
    pages, _ = run(keys, keys[::1000])
    assert pages.calls <= 52


def test_absent_dense_keys_cost_as_little() -> None:
    pages, findings = run(["zzz"], [f"doc-{number:04d}" for number in range(1000)])
    assert pages.calls == 1
    assert not any(finding.present for finding in findings)


def test_clusters_are_found_again() -> None:
    keys = [f"{number:06d}" for number in range(30_000)]
    wanted = keys[:20_000:1000] + keys[20_000:22_000]
    pages, _ = run(keys, wanted)
    assert pages.calls <= 20 + 8


def test_time_that_is_over_leaves_the_rest_out() -> None:
    keys = [f"{number:06d}" for number in range(3000)]
    ticks = iter([True, True])
    pages = FakeObjects(keys, ORDERS["bytes"])
    findings = list(survey_objects(keys, pages, lambda: next(ticks, False)))
    assert pages.calls == 2
    assert len(findings) == 2000


def page(*keys: str, truncated: bool = False, encoded: bool = True, **more: object) -> Page:
    return Page(FACTS, {key: [] for key in keys}, (list(keys),), truncated, encoded, **more)  # type: ignore[arg-type]


def test_what_xml_may_have_lost_decides_nothing_unless_encoded() -> None:
    assert page("a\nb", after="a").excludes("a\rb")
    assert not page("a\nb", after="a", encoded=False).excludes("a\rb")
    assert not page("a\ufffdb", after="a", encoded=False).has("a\ufffdb")
    assert not page("a\ufffdb", after="a", encoded=False).excludes("a\x01b")
    assert page("a\ufffdb", after="a").has("a\ufffdb")


def test_a_listing_of_something_else_proves_nothing() -> None:
    assert page("lead", prefix="/lead").excludes("/lead") is False
    assert page(prefix="/lead").excludes("/lead")
    assert page(prefix="/lead", truncated=True).excludes("/lead") is False
    assert page("k2", prefix="k", truncated=True).excludes("k")


def test_a_place_that_another_order_would_put_elsewhere_is_not_passed() -> None:
    assert not page("a/w", "a/x", after="a", truncated=True).excludes("a.b")  # a walk has "a.b" on its next page
    assert page("a.c", "a/x", after="a", truncated=True).excludes("a.b")  # no walk lists in this order
    # nor does it list these after "a!", unless it does not know where to start: then they prove nothing
    assert not page("a/w", "a/x", after="a!", truncated=True).excludes("a.b")
