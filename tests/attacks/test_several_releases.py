"""Several releases of the same people: the publisher is told that somebody may set them together.

What they tell together has no bound (docs/privacy.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import pytest

from tests.integration.parties import Functions, Parties, create_table, fetch, remains

KINDS: dict[str, dict[str, Any]] = {
    "buckets": {"privacy": '{"l": 2}'},
    "generalized": {"k": 3, "method": "mondrian", "refine": False},
    "freeform": {"k": 3},
    "suppressed": {"k": 3},
}
WARNING = "the same readers can read other publications of this source (first)"


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    rows = [(20 + i % 10, f"disease {i % 5}") for i in range(60)]
    create_table(parties.publisher, "data.people", "age int, sick text", rows)
    Functions(parties.publisher).register("data.people", ["age"], "sick")


@pytest.fixture(autouse=True)
def nothing_left(parties: Parties) -> Iterator[None]:
    yield
    for name in Functions(parties.publisher).publications():
        Functions(parties.publisher).drop(name)
    assert remains(parties.admin) == []


def warned(parties: Parties, kind: str, name: str, **given: Any) -> bool:
    """Whether the publisher is warned that readers may set the publication against the first."""
    heard: list[str] = []
    listen = lambda notice: heard.append(str(notice.message_primary))
    parties.publisher.add_notice_handler(listen)
    kanon = Functions(parties.publisher)
    kanon.call(f"publish_{kind}", "data.people", name, **KINDS[kind], **given)
    parties.publisher.remove_notice_handler(listen)
    return any(text.startswith(WARNING) for text in heard)


@pytest.mark.pitfall(13, 30)
@pytest.mark.parametrize(("first", "second"), list(permutations(KINDS, 2)))
def test_releases_of_two_kinds_are_warned_of(parties: Parties, first: str, second: str) -> None:
    """Buckets and rows of the same people leave fewer values than either; so do two of rows."""
    assert not warned(parties, first, "first")
    assert warned(parties, second, "second", dry_run=True)
    assert warned(parties, second, "second")


@pytest.mark.pitfall(30)
def test_members_of_readers_are_warned_of(parties: Parties, new_role: Callable[..., str]) -> None:
    """Someone who reads the first publication as a member of a role is to read the second, too."""
    member = new_role("kanon_analyst")
    assert not warned(parties, "buckets", "first")
    assert warned(parties, "suppressed", "second", readers=[member])
    fetch(parties.admin, f"DROP OWNED BY {member}")
