"""What several releases tell together, compared with all worlds on small cases."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given, settings

from kanon_db.algorithms.releases.candidates import candidates_of
from kanon_db.algorithms.releases.differencing import differences, everybody, virtual_releases
from kanon_db.algorithms.releases.forced import force
from kanon_db.algorithms.releases.placements import Releases
from kanon_db.algorithms.releases.worlds import count_worlds
from tests.profiles import examples
from tests.property.plain_worlds import Case, cases, plain_posterior

MANY = settings(max_examples=examples(600))


def listed(found, t: int) -> set[int]:
    start = found.first[t]
    return set(found.value[start : start + found.number[t]].tolist())


@MANY
@given(cases())
def test_candidates_and_forced_values_hold_in_all_worlds(case: Case) -> None:
    truth = plain_posterior(case)
    candidates = candidates_of(case.together)
    wide = {t: listed(candidates, t) for t in truth}
    forced = force(case.together)
    virtual, _ = virtual_releases(case.together)
    more = force(Releases.of([*case.arrays, *virtual], case.n_tuples, case.n_values))
    assert not forced.is_contradicted.any()
    assert not more.is_contradicted.any()
    for t, shares in truth.items():
        assert wide[t] >= listed(forced.candidates, t) >= shares.keys()
        assert listed(more.candidates, t) >= shares.keys()


@MANY
@given(cases())
def test_counted_worlds_are_all_worlds(case: Case) -> None:
    releases = case.together
    found = force(releases)
    counted = count_worlds(releases, found, 1_000_000)
    first = found.candidates.first
    for t, shares in plain_posterior(case).items():
        assert counted.is_known[t]
        for j in range(first[t], first[t] + found.candidates.number[t]):
            expected = shares.get(int(found.candidates.value[j]), 0)
            assert np.isclose(counted.share[j], float(expected))


@MANY
@given(cases())
def test_differences_are_those_of_the_people(case: Case) -> None:
    """The least numbers are not above the true ones, and equal them in one-sided groups."""
    releases = case.together
    for old, new in permutations(range(len(case.releases)), 2):
        for groups in (None, everybody(releases)):
            found = differences(releases, old, new, groups)
            came = _true_changes(case, found.group_of_bucket, old, new)
            went = _true_changes(case, found.group_of_bucket, new, old)
            for true, inserted in ((came, True), (went, False)):
                group, value, least, _ = found.surely(inserted=inserted)
                for g, v, n in zip(group.tolist(), value.tolist(), least.tolist(), strict=True):
                    assert n <= true.get((g, v), 0)
                    assert n == true[g, v] or not found.is_one_sided[g]


def _true_changes(case: Case, groups, old: int, new: int):
    """Values in a group of those people and counterfeits who are in the new release only."""
    first = np.cumsum([0] + [len(r) for r in case.releases])

    def there(number: int) -> list[tuple]:
        return [
            (int(groups[first[number] + b]), who or ("counterfeit", number, b), value)
            for b, bucket in enumerate(case.releases[number])
            for who, value in bucket
        ]

    true: dict[tuple[int, int], int] = {}
    before = {(group, who) for group, who, _ in there(old)}
    for group, who, value in there(new):
        if (group, who) not in before:
            true[group, value] = true.get((group, value), 0) + 1
    return true
