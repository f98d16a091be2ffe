"""Who reads two publications of the same people, behind the back of whoever released them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.commands import kanon as command
from tests.integration.parties import Functions, Parties, create_table, fetch

BOTH = "can read one_b and two_b, of the same people, which nobody has accepted"
ACCEPT = '{"combined_releases": "one team"}'


@pytest.fixture(scope="module")
def released(parties: Parties, new_role: Callable[..., str]) -> list[str]:
    """Three groups: two_b and one_b of the same table are released to the first two."""
    groups = [new_role("kanon_user") for _ in range(3)]
    fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    kanon = Functions(parties.publisher)
    for table in ("data.people", "data.others"):
        rows = [(i % 12, i % 4) for i in range(60)]
        create_table(parties.publisher, table, "age int, ill int", rows)
        kanon.register(table, ["age"], "ill")
    kanon.publish("data.people", "one_b", privacy='{"l": 2}', readers=groups[:1])
    kanon.publish("data.people", "two_b", privacy='{"l": 3}', readers=groups[1:2])
    return groups


def told(parties: Parties) -> dict[str, list[str]]:
    """What doctor says of roles that are not as they should be."""
    answer = command("doctor", "--json", dsn=parties.dsn)
    lines = [one for one in answer.json()["findings"] if one["state"] != "ok"]
    assert {one["state"] for one in lines} <= {"broken"}
    assert answer.returncode == bool(lines)
    found: dict[str, list[str]] = {}
    for one in lines:
        found.setdefault(one["subject"].removeprefix("role "), []).append(one["value"])
    return found


WAYS = {
    "a membership": ["GRANT {group} TO {role}"],
    "a membership of a member": ["GRANT {group} TO {between}", "GRANT {between} TO {role}"],
    "a grant of the view": ["GRANT SELECT ON published.two_b TO {role}"],
    "a grant of a table behind it": ["GRANT SELECT ON published.two_b_qit TO {role}"],
    "columns": ["GRANT SELECT (age, ill) ON published.two_b TO {role}"],
}


@pytest.mark.slow("every way to become a reader, and doctor after each")
@pytest.mark.pitfall(54)
def test_54_doctor_names_who_reads_two(
    parties: Parties, released: list[str], new_role: Callable[..., str]
) -> None:
    """However that came about, and also once the ledger has noted it; nobody else is named."""
    roles = {way: new_role(released[0]) for way in (*WAYS, "none")}
    between = new_role()
    for way, statements in WAYS.items():
        for statement in statements:
            given = {"group": released[1], "role": roles[way], "between": between}
            fetch(parties.admin, statement.format(**given))
    wanted = {roles[way]: [BOTH] for way in WAYS}
    assert told(parties) == wanted
    # The ledger notes readers when anything else is released.
    kanon = Functions(parties.publisher)
    for source in ("data.others", "data.people"):
        given = {"privacy": '{"l": 2}', "readers": released[2:], "accept": ACCEPT}
        kanon.publish(source, "third", **given)
        assert told(parties) == wanted, source
        kanon.drop("third")
    # What is not read any more is not named.
    names = ", ".join([*roles.values(), between])
    fetch(parties.admin, f"DROP OWNED BY {names}")
    fetch(parties.admin, f"REVOKE {released[1]}, {between} FROM {names}")
    assert told(parties) == {}
    fetch(parties.admin, "GRANT SELECT ON published.two_b_sat TO PUBLIC")
    assert told(parties).keys() >= set(roles.values())
    fetch(parties.admin, "REVOKE SELECT ON published.two_b_sat FROM PUBLIC")
    fetch(parties.admin, f"REVOKE {released[0]} FROM {', '.join(roles.values())}")


@pytest.mark.pitfall(54)
def test_54_what_was_accepted_is_not_named(
    parties: Parties, released: list[str], new_role: Callable[..., str]
) -> None:
    """It is accepted for a role, and so for who joins this one, and for nobody else."""
    one, other = new_role(*released[:2]), new_role(*released[:2])
    kanon = Functions(parties.publisher)
    assert told(parties) == {one: [BOTH], other: [BOTH]}
    kanon.call("grant_publication", "two_b", readers=[one], accept=ACCEPT)
    assert told(parties) == {other: [BOTH]}
    kanon.call("grant_publication", "two_b", readers=[released[0]], accept=ACCEPT)
    later = new_role(released[0])
    assert told(parties) == {}, later
