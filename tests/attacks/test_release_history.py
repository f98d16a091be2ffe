"""Any history of releases: the ledger knows who could see what, and refuses what it must."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.parties import (
    Functions,
    Parties,
    create_table,
    fetch,
    forget_draws,
    sqlstate_of,
)
from tests.profiles import examples

ROLES = ("one", "two", "group")
NAMES = ("a", "b")
ACCEPT = '{"combined_releases": "it is a test"}'
SOURCES = (f"history{number}" for number in itertools.count())

STEP = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(NAMES), st.sets(st.sampled_from(ROLES)),
              st.booleans()),
    st.tuples(st.just("refresh"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("drop"), st.sampled_from(NAMES)),
    st.tuples(st.just("grant"), st.sampled_from(NAMES), st.sampled_from(ROLES), st.booleans()),
    st.tuples(st.just("revoke"), st.sampled_from(NAMES), st.sampled_from(ROLES)),
    st.tuples(st.just("rename source")),
    st.tuples(st.just("join"), st.sampled_from(("one", "two")), st.booleans()),
)  # fmt: skip


@dataclass
class Release:
    """What a plain model knows of one: who can read it now, and who ever could."""

    grantees: set[str]
    accepted: bool = False
    readers: set[str] = field(default_factory=set)


class History:
    """The model beside the server."""

    def __init__(self, parties: Parties, roles: dict[str, str]) -> None:
        self.parties, self.roles = parties, roles
        self.kanon = Functions(parties.publisher)
        self.source = next(SOURCES)
        self.members: set[str] = set()
        self.live: dict[str, Release] = {}
        self.all: list[Release] = []
        self.noted: list[set[str]] = []
        self.n_rows = 0
        create_table(parties.publisher, f"data.{self.source}", "age int, sick text, id int", [])
        self._grow()
        self._register()

    def _grow(self) -> None:
        # So many that no two draws have the same buckets by chance, which would be allowed: of 12
        # rows, one in 36 had.
        first, self.n_rows = self.n_rows, self.n_rows + 40
        fetch(
            self.parties.publisher,
            f"INSERT INTO data.{self.source} SELECT i, 'ill ' || i % 4, i"
            f" FROM generate_series({first}, {self.n_rows - 1}) AS i",
        )

    def _register(self) -> None:
        self.kanon.register(f"data.{self.source}", ["age"], "sick", arrival="id")

    def _can(self, release: Release) -> set[str]:
        """Login roles that can read it now; a group's member reads what the group may."""
        return {
            role for role in ("one", "two")
            if role in release.grantees or ("group" in release.grantees and role in self.members)
        }  # fmt: skip

    def _look(self) -> None:
        """The ledger looks at who can read whenever something is published or granted.

        When one is dropped, at who could read that one.
        """
        self.noted = [set(release.readers) for release in self.all]
        for release in self.live.values():
            release.readers |= self._can(release)

    def _conflicts(self, new: Release, but: Release | None = None) -> bool:
        return any(self._can(new) & other.readers for other in self.all if other is not but)

    def step(self, what: str, *given: Any) -> None:
        if what == "rename source":
            new = next(SOURCES)
            fetch(self.parties.publisher, f"ALTER TABLE data.{self.source} RENAME TO {new}")
            if not self.live:
                self.source = new
                self._register()
            else:  # publications know it by its name
                fetch(
                    self.parties.publisher, f"ALTER TABLE data.{new} RENAME TO {self.source}"
                )  # fmt: skip
            return
        if what == "join":
            role, joins = given
            self.members = self.members | {role} if joins else self.members - {role}
            change = "GRANT {} TO {}" if joins else "REVOKE {} FROM {}"
            fetch(
                self.parties.admin, change.format(self.roles["group"], self.roles[role])
            )  # fmt: skip
            return
        getattr(self, f"_{what}")(*given)

    def _publish(self, name: str, grantees: set[str], accepts: bool) -> None:
        self._look()
        new = Release(set(grantees))
        # What there is nothing to accept of is not kept as accepted.
        new.accepted = accepts and self._conflicts(new)
        refused = self._conflicts(new) and not accepts
        given = {"accept": ACCEPT} if accepts else {}
        forget_draws(self.parties.admin)  # the same draw again would be allowed, too
        done = self._tried(
            "publish_buckets", f"data.{self.source}", name, privacy='{"l": 2}', replace=True,
            readers=[self.roles[role] for role in sorted(grantees)], **given,
        )  # fmt: skip
        assert done is not refused
        if done:
            self.live[name] = new
            self.all.append(new)
            self._look()

    def _refresh(self, name: str, grows: bool) -> None:
        if name not in self.live:
            return
        if grows:
            self._grow()
        release, refused = self.live[name], False
        self.noted = [set(one.readers) for one in self.all]
        rows = fetch(
            self.parties.publisher,
            "SELECT rows FROM kanon.publications WHERE name = $1::text", name,
        )  # fmt: skip
        if rows != [(self.n_rows,)]:  # where nobody came, nothing is looked at
            self._look()
            refused = self._conflicts(release, release) and not release.accepted
        assert self._tried("refresh", name) is not refused

    def _drop(self, name: str) -> None:
        if name in self.live:
            release = self.live.pop(name)
            release.readers |= self._can(release)
            self.kanon.drop(name)

    def _grant(self, name: str, role: str, by_hand: bool) -> None:
        if name not in self.live:
            return
        release = self.live[name]
        self._look_if_granted(by_hand)
        after = Release(release.grantees | {role}, release.accepted)
        fresh = Release({role})
        refused = (
            self._conflicts_of(self._can(after) - release.readers, release)
            if by_hand
            else self._conflicts(fresh, release) and not release.accepted
        )
        if by_hand:
            text = f"GRANT SELECT ON published.{name} TO {self.roles[role]}"
            state = sqlstate_of(lambda: fetch(self.parties.publisher, text))
            assert state in (None, "KN005")
            done = state is None
        else:
            given = {"accept": ACCEPT} if release.accepted else {}
            done = self._tried("grant_publication", name, readers=[self.roles[role]], **given)
        assert done is not refused
        if done:
            release.grantees.add(role)
            release.readers |= self._can(release)

    def _look_if_granted(self, by_hand: bool) -> None:
        if not by_hand:
            self._look()

    def _conflicts_of(self, fresh: set[str], release: Release) -> bool:
        return any(fresh & other.readers for other in self.all if other is not release)

    def _revoke(self, name: str, role: str) -> None:
        if name in self.live:
            relations = ", ".join(f"published.{name}{end}" for end in ("", "_qit", "_sat", "_cod"))
            fetch(
                self.parties.publisher, f"REVOKE SELECT ON {relations} FROM {self.roles[role]}"
            )  # fmt: skip
            if role in self.live[name].grantees:  # only then its rights change
                self.live[name].grantees.discard(role)
                self.live[name].readers |= self._can(self.live[name])

    def _tried(self, function: str, *texts: str, **given: Any) -> bool:
        """Whether it was done; what was refused leaves no trace, nor what the ledger saw."""
        state = sqlstate_of(lambda: self.kanon.rows(function, *texts, **given))
        assert state in (None, "KN005")
        if state is not None:
            for release, readers in zip(self.all, self.noted, strict=True):
                release.readers = readers
        return state is None

    def end(self) -> None:
        for name in list(self.live):
            self._drop(name)
        for role in self.members:
            fetch(
                self.parties.admin, f"REVOKE {self.roles['group']} FROM {self.roles[role]}"
            )  # fmt: skip


@pytest.fixture
def roles(parties: Parties, new_role: Callable[..., str]) -> Iterator[dict[str, str]]:
    fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    found = {role: new_role() for role in ROLES}
    fetch(parties.admin, f"ALTER ROLE {found['group']} NOLOGIN")
    names = ", ".join(found.values())
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {names}")
    yield found
    fetch(parties.admin, f"DROP OWNED BY {names}")


@given(st.lists(STEP, min_size=3, max_size=12))
@settings(
    max_examples=examples(30),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_history(parties: Parties, roles: dict[str, str], steps: list[tuple[Any, ...]]) -> None:
    history = History(parties, roles)
    try:
        for what, *given_ in steps:
            history.step(what, *given_)
        noted = fetch(
            parties.publisher,
            "SELECT r.name, array(SELECT DISTINCT d ->> 'role' FROM jsonb_array_elements(r.readers)"
            " AS d) FROM kanon.releases AS r WHERE r.name IN ('a', 'b') AND r.release_id IN"
            " (SELECT release_id FROM kanon.releases ORDER BY release_id DESC LIMIT $1::int)"
            " ORDER BY r.release_id",
            len(history.all),
        )
        wanted = [{roles[role] for role in release.readers} for release in history.all]
        assert [set(found) for _, found in noted] == wanted
    finally:
        history.end()
