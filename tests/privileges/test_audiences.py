"""Two groups of readers get publications of the same people; each asks its own, nobody both."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from kanon_db.installation.doctor import examine
from tests.acceptance.commands import kanon as run
from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    create_source,
    drop_all,
    fetch,
    hearing,
    parties,
)

__all__ = ["parties"]

NUMBERS = itertools.count()
QUESTION = "SELECT COUNT(*) FROM {} WHERE age < 30 AND illness = 'illness 3'"


@pytest.fixture
def patients(parties: Parties) -> Iterator[str]:
    fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    rows = [(i % 60, f"illness {i * 7 % 11}") for i in range(600)]
    name = f"data.patients_{next(NUMBERS)}"  # since the ledger remembers a table by its name
    create_source(parties.publisher, name, "age int, illness text", rows)
    yield name
    drop_all(parties)


def refused(call: Callable[[], Any]) -> psycopg.errors.Diagnostic:
    with pytest.raises(psycopg.Error) as raised:
        call()
    return raised.value.diag


@pytest.mark.long
@pytest.mark.pitfall(5, 13)
def test_two_audiences(
    parties: Parties, patients: str, new_role: Callable[..., str],
    connect_as: Callable[[str, str], Connection],
) -> None:  # fmt: skip
    """Each asks its own, cannot read the other's, and nobody reads both."""
    group = new_role("kanon_user")
    kanon = Functions(parties.publisher)
    with hearing(parties.publisher) as heard:
        kanon.publish(patients, "patients_b", privacy='{"l": 3}')
        kanon.generalize(patients, "patients_k", k=5, readers=[group])
    assert not [text for text in heard if "could read" in text or "combined" in text]

    member = new_role(group)
    assert Package(parties.publisher).kanon.readers("patients_k") == {
        group: sorted((group, member))
    }
    with connect_as(parties.dsn, member) as researcher:
        audiences = {"patients_b": parties.analyst, "patients_k": researcher}
        for own, connection in audiences.items():
            asks = Functions(connection)
            assert asks.publications() == [own]
            assert asks.estimate(QUESTION.format(own))[0] > 0
            assert asks.rows("estimate", QUESTION.format(own))
            assert all(holds for *_, holds in asks.verify(own))
            assert asks.metrics(own)
            assert asks.rewrite(QUESTION.format(own))
            fetch(connection, f"SELECT count(*) FROM published.{own}")
            (other,) = audiences.keys() - {own}
            for function in ("estimate_count", "estimate", "explain_count", "rewrite_count"):
                asked = lambda: asks.rows(function, QUESTION.format(other))
                assert refused(asked).sqlstate == "42704", function
            for function in ("verify", "metrics", "draw"):
                named = lambda: asks.rows(function, other)
                assert refused(named).sqlstate == "42704", function
            read = lambda: fetch(connection, f"SELECT FROM published.{other}")
            assert refused(read).sqlstate == "42501"
    # Of all who could log in, apart from administrators, who may dump, and who has published them.
    assert not fetch(
        parties.admin,
        "SELECT rolname FROM pg_roles WHERE rolcanlogin AND NOT rolsuper AND rolname <> $1::text"
        " AND NOT pg_has_role(oid, 'pg_read_all_data', 'MEMBER')"
        " AND has_table_privilege(oid, 'published.patients_b', 'SELECT')"
        " AND has_table_privilege(oid, 'published.patients_k', 'SELECT')",
        parties.publisher.info.user,
    )


@pytest.mark.long
@pytest.mark.pitfall(13)
def test_whoever_is_in_both_audiences(
    parties: Parties, patients: str, new_role: Callable[..., str]
) -> None:
    """The ledger refuses the second publication, and names the person; the hint leads out of it."""
    group = new_role("kanon_user")
    both = new_role("kanon_analyst", group)
    kanon = Functions(parties.publisher)
    kanon.publish(patients, "patients_b", privacy='{"l": 3}')
    kanon.generalize(patients, "draft", k=5, readers=[])
    for call in (
        lambda: kanon.generalize(patients, "patients_k", k=5, readers=[group]),
        lambda: kanon.rows("grant_publication", "draft", readers=[group]),
        lambda: fetch(parties.publisher, f"GRANT SELECT ON published.draft TO {group}"),
    ):
        diag = refused(call)
        assert diag.sqlstate == "KN005"
        assert both in f"{diag.message_primary} {diag.message_detail}"
    hint = refused(lambda: kanon.generalize(patients, "k", k=5, readers=[group])).message_hint
    assert "CREATE ROLE team IN ROLE kanon_user" in str(hint)

    # A role as the hint says: with members who were never among the others.
    team = new_role("kanon_user")
    new_role(team)
    kanon.generalize(patients, "patients_k", k=5, readers=[team])
    # Who becomes a member of both afterwards is found when somebody looks, and when anything else
    # is released.
    assert read_by_one(parties, both)
    fetch(parties.admin, f"GRANT {team} TO {both}")
    assert not read_by_one(parties, both)
    assert both in str(
        refused(lambda: kanon.suppress(patients, "p", k=2, readers=[team])).message_detail
    )


def read_by_one(parties: Parties, role: str) -> bool:
    """Whether doctor finds nobody of that name who reads two publications of the same people."""
    found = [one for one in examine(parties.dsn) if one.subject == f"role {role}"]
    assert all("patients_b and patients_k" in one.value for one in found)
    return not found


def test_users_read_nothing_that_does_not_name_them(
    parties: Parties, patients: str, new_role: Callable[..., str],
    connect_as: Callable[[str, str], Connection],
) -> None:  # fmt: skip
    """Neither before nor after somebody else is named, however often it is replaced."""
    kanon = Functions(parties.publisher)
    kanon.publish(patients, "patients_b", privacy='{"l": 3}')
    accept = '{"combined_releases": "it is a test"}'
    kanon.publish(patients, "patients_b", privacy='{"l": 3}', replace=True, accept=accept)
    with connect_as(parties.dsn, new_role("kanon_user")) as connection:
        assert Functions(connection).publications() == []
        read = lambda: fetch(connection, "SELECT FROM published.patients_b")
        assert refused(read).sqlstate == "42501"
        publish = lambda: Functions(connection).publish(patients, "mine", privacy='{"l": 2}')
        assert refused(publish).sqlstate == "42501"


@pytest.mark.long
def test_a_role_without_members_is_no_way_round(parties: Parties, patients: str) -> None:
    """Nobody reads either yet, so nothing is refused: whoever joins would read both."""
    fetch(parties.admin, "CREATE ROLE kanon_test_later IN ROLE kanon_user")
    try:
        given = {"privacy": '{"l": 3}', "readers": ["kanon_test_later"]}
        Functions(parties.publisher).publish(patients, "patients_b", **given)
        answer = run(
            "publish", "suppressed", patients, "patients_p", "--k", "2",
            "--readers", "kanon_test_later", dsn=parties.publisher.info.dsn,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        said = " ".join(answer.stdout.split())
        assert "patients_b, of the same people" in said
        assert "nobody yet: GRANT kanon_test_later TO somebody" in said
    finally:
        drop_all(parties)
        fetch(parties.admin, "DROP OWNED BY kanon_test_later")
        fetch(parties.admin, "DROP ROLE kanon_test_later")


@pytest.mark.long
def test_the_way_to_name_a_reader(
    parties: Parties, patients: str, new_role: Callable[..., str]
) -> None:
    """A role that is missing, or may not ask, is refused with the statement that helps."""
    kanon = Functions(parties.publisher)
    missing = refused(lambda: kanon.publish(patients, "b", privacy='{"l": 3}', readers=["Team"]))
    assert 'CREATE ROLE "Team" IN ROLE kanon_user' in str(missing.message_hint)
    stranger = new_role()
    shut_out = refused(lambda: kanon.publish(patients, "b", privacy='{"l": 3}', readers=[stranger]))
    assert f"GRANT kanon_user TO {stranger}" in str(shut_out.message_hint)
    fetch(parties.admin, f"GRANT kanon_user TO {stranger}")
    kanon.publish(patients, "b", privacy='{"l": 3}', readers=[stranger])
