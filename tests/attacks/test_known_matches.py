"""Whoever learns which rows belong to some people uses that against the others: by enumeration."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.generalization import k_member
from kanon_db.algorithms.ground.computation import UNLIMITED
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.declaration import read_request
from kanon_db.publications.freeform import methods
from kanon_db.publications.freeform.kind import FreeformGuarantee
from kanon_db.publications.freeform.request import FreeformRequest
from tests.attacks.publishers import microdata_of
from tests.profiles import long_but

N, K = 8, 4
KNOWN = 2  # which would leave everybody else two rows at least, in classes

Rows = tuple[int, ...]
"""The row of each person."""


def random_tables(n: int) -> list[Microdata]:
    draw = random.Random(3)  # noqa: S311  # the tables by which the fault was found
    coordinate = lambda: (draw.randrange(8), draw.randrange(8))
    return [microdata_of(tuple(coordinate() for _ in range(N))) for _ in range(n)]


def assignments(rows_of: Sequence[set[int]], taken: Rows = ()) -> Iterator[Rows]:
    """Give every way to let each person have a row of their own, of those that may be theirs."""
    if len(taken) == len(rows_of):
        yield taken
        return
    for row in rows_of[len(taken)] - set(taken):
        yield from assignments(rows_of, (*taken, row))


def surest(rows_of: Sequence[set[int]]) -> Fraction:
    """How sure somebody can be of another's row, who knows two, if all ways are equally likely."""
    worlds, worst = list(assignments(rows_of)), Fraction(0)
    for known in itertools.combinations(range(N), KNOWN):
        left = defaultdict(list)
        for world in worlds:
            left[tuple(world[person] for person in known)].append(world)
        for possible in left.values():
            for person in set(range(N)) - set(known):
                most = max(Counter(world[person] for world in possible).values())
                worst = max(worst, Fraction(most, len(possible)))
    return worst


def request(**options: bool) -> FreeformRequest:
    named = {"source": "data.people", "publication": "p", "k": K, "options": options}
    found: FreeformRequest = read_request(FreeformRequest, named)
    return found


@pytest.mark.slow("matches 150 random tables")
@pytest.mark.pitfall(43)
@pytest.mark.parametrize("symmetric", long_but([True], [True, False]))
def test_known_matches_make_others_certain_in_a_graph(*, symmetric: bool) -> None:
    """Also where matches are mutual: nothing is promised then, and the guarantee says so."""
    asked = request(symmetric=True) if symmetric else request()
    certain = 0
    for table in random_tables(150 if symmetric else 40):
        matches = methods.sort_greedy(table, asked, UNLIMITED).result.matches
        rows_of: list[set[int]] = [set() for _ in range(N)]
        for row, originals in enumerate(matches.tolist()):
            for original in originals:
                rows_of[original].add(row)
        certain += surest(rows_of) == 1
    assert certain == 55 if symmetric else certain > 0
    said = str(FreeformGuarantee.of(asked))
    assert "; whoever knows which record is somebody's can be certain of others'" in said
    assert ("which does not change that" in said) == symmetric


@pytest.mark.pitfall(43)
def test_known_matches_leave_the_others_of_a_class() -> None:
    """What the pages advise where matches may become known: c of them leave k - c, as likely."""
    for table in random_tables(40):
        classes = k_member(table, K, random=np.random.default_rng(0)).class_of_record
        members = [set(np.flatnonzero(classes == one).tolist()) for one in classes.tolist()]
        assert surest(members) <= Fraction(1, K - KNOWN)
