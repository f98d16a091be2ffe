"""Attacks on published rows: the view as the attacker reads it, and the source, which scores."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, Self

import numpy as np

from kanon_db.algorithms.attacks import (
    Achieved,
    Covering,
    PublishedRows,
    Truth,
    achieved,
    downcode,
    guess_people,
    unusual_records,
)
from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.entries import Publication
from kanon_db.publications.attacks import Listener
from kanon_db.publications.kind import Target
from kanon_db.publications.results import Attack
from kanon_db.publications.rows.published_cells import RowCodes, classes_of_rows, read_cells
from kanon_db.transfer.columns import Relation, column_types, find_relation
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.values import distinct_values, read_codes, read_known_codes

MOST_COMPARISONS: Final = 1_000_000_000
"""Of a person with a class, or of a row with a person."""

MOST_PEOPLE: Final = 10_000
"""How many people or rows are looked up one by one."""


class CountedValues(Protocol):
    """The sensitive values of a table."""

    @property
    def labels(self) -> Sequence[str | None]:
        """Their texts."""

    @property
    def counts(self) -> IntArray:
        """How many records have each."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """What a guarantee says about sensitive values.

    Attributes
    ----------
    values : ndarray of float64, shape (n_values,), or None
        The largest probability of each value; None if it says nothing.
    certain : float or None
        The largest share of people whose value may be certain; None if it says nothing.
    """

    values: FloatArray | None = None
    certain: float | None = None


@dataclass(frozen=True, eq=False)
class AttackedRows:
    """Rows and source by the same codes; without a sensitive attribute all values are 0.

    Attributes
    ----------
    rows : PublishedRows
    class_of_row, values_of_rows : ndarray of int64, shape (n_rows,)
        The class of each row, and the code of its sensitive value.
    codes : ndarray of int32, shape (n_people, n_qi)
        Of the source.
    values : ndarray of int64, shape (n_people,)
        The codes of its sensitive values; -1 of one that no row has.
    sensitive : CountedValues or None
        Of the rows.
    """

    rows: PublishedRows
    class_of_row: IntArray
    values_of_rows: IntArray
    codes: CodeArray
    values: IntArray
    sensitive: CountedValues | None

    @classmethod
    def of(
        cls,
        read: RowCodes,
        codes: CodeArray,
        values: IntArray,
        n_codes: Sequence[int],
        sensitive: CountedValues | None,
    ) -> Self:
        """Gather rows into classes, and set the source against them.

        Parameters
        ----------
        read : RowCodes
        codes, values, sensitive
            As attributes.
        n_codes : sequence of int
            The number of values of each quasi-identifier in the source.
        """
        class_of_row, first = classes_of_rows(read.numbers)
        covering = Covering(read.cells, read.numbers[first], n_codes)
        n_values = 1 if sensitive is None else len(sensitive.labels)
        rows = PublishedRows.of(covering, class_of_row, read.values, n_values)
        return cls(rows, class_of_row, read.values, codes, values, sensitive)


def read_rows(target: Target) -> AttackedRows:
    """Read the published rows, and the source."""
    session, layout = target.session, target.publication.layout
    names = [cell["name"] for cell in layout["quasi_identifiers"]]
    sensitive_name = layout["sensitive"]
    its_column = [] if sensitive_name is None else [sensitive_name]
    source = take_snapshot(session, target.source.relation, [*names, *its_column], target.room)
    columns = [distinct_values(source, target.types[name]) for name in names]
    codes = read_codes(source, columns)

    relation = Relation(target.schema, target.publication.name)
    pattern = [layout["pattern"]] if layout.get("pattern") else []
    view = take_snapshot(session, relation, [*names, *pattern, *its_column], target.room)
    _, oid, _ = find_relation(session, relation.quoted(session))
    cells, numbers = read_cells(
        view, column_types(session, oid), layout["quasi_identifiers"], columns, pattern
    )
    sensitive = None
    of_rows = np.zeros(view.n_records, dtype=np.int64)
    values = np.zeros(source.n_records, dtype=np.int64)
    if sensitive_name is not None:
        sensitive = distinct_values(view, target.types[sensitive_name])
        of_rows = read_codes(view, [sensitive])[:, 0].astype(np.int64)
        values = read_known_codes(source, [sensitive])[:, 0].astype(np.int64)
        sensitive.drop()
    for column in columns:
        column.drop()
    source.drop()
    view.drop()
    n_codes = [len(column.labels) for column in columns]
    return AttackedRows.of(RowCodes(cells, numbers, of_rows), codes, values, n_codes, sensitive)


def play_attacks(
    listener: Listener,
    pulse: Pulse,
    publication: Publication,
    attacked: AttackedRows,
    bounds: Bounds,
    *,
    shares_cells: bool,
) -> list[Attack]:
    """Play all attacks on published rows.

    Parameters
    ----------
    listener : Listener
    pulse : Pulse
    publication : Publication
        Its k says how many rows a person may have at least, or how many people a row.
    attacked : AttackedRows
    bounds : Bounds
    shares_cells : bool
        Whether the rows with the same cells are a class; otherwise, the rows that may be a person's
        take its place.

    Returns
    -------
    list of Attack
        See ``docs/attacks.md``. People are a random sample if all of them would take too long.
    """
    return [
        Attack(name, found.bound, found.base_rate, found.rate, found.people)
        for name, found in _play(
            listener, pulse, publication, attacked, bounds, shares_cells=shares_cells
        )
    ]


def _play(
    session: Listener,
    pulse: Pulse,
    publication: Publication,
    attacked: AttackedRows,
    bounds: Bounds,
    *,
    shares_cells: bool,
) -> Iterator[tuple[str, Achieved]]:
    rows, k = attacked.rows, int(publication.parameters["k"])
    random = np.random.default_rng(secrets.randbits(128))
    n_people, n_rows = attacked.values.size, attacked.class_of_row.size
    has_values = attacked.sensitive is not None
    protected = None if bounds.values is None else bounds.values < 1

    session.step("attacking: people")
    unusual = unusual_records(attacked.codes, pulse=pulse)
    half = random.random(n_people) < 0.5
    for prefix, people in (
        ("", np.arange(n_people)),
        ("unusual people: ", np.flatnonzero(unusual)),
    ):
        drawn = _drawn(people, rows.covering.n_classes, random)
        if drawn.size < people.size:
            session.tell(
                f"{prefix}the attacks look up a random sample of {drawn.size:,} of"
                f" {people.size:,} people"
            )
        found = guess_people(rows, attacked.codes, attacked.values, drawn, half, protected, pulse)
        linked = _linked(found.n_rows, n_rows, k)
        # Of k entities' rows, most may be of one.
        counts_entities = publication.parameters.get("counts_entities")
        yield f"{prefix}linking a row", replace(linked, bound=None) if counts_entities else linked
        if not has_values:
            continue
        truth, numbers = _truth(attacked, drawn)
        guessed = {"most frequent value": found.most_frequent}
        if not prefix:
            guessed |= {"deFinetti": found.learned, "correlations of the source": found.known}
        for name, guesses in guessed.items():
            yield f"{prefix}{name}", achieved(truth, numbers, guesses, bounds.values)
        if not prefix:
            in_classes = n_rows, rows.homogeneous_share
            in_rows = drawn.size, float((found.n_values == 1).mean())
            certain = in_classes if shares_cells else in_rows
            yield "homogeneity", Achieved(*certain, float(rows.n_values == 1), bounds.certain)
    if all(cell["cell"] == "value" for cell in publication.layout["quasi_identifiers"]):
        return
    session.step("attacking: tight cells")
    yield "downcoding", _downcoded(attacked, k, random, pulse)


def _linked(n_candidates: IntArray, n_rows: int, k: int) -> Achieved:
    """Pick one of the rows that may be a person's."""
    if not n_candidates.size:
        return Achieved(0, None, None, None)
    rates = np.divide(1, n_candidates, out=np.zeros(n_candidates.size), where=n_candidates > 0)
    return Achieved(n_candidates.size, float(rates.mean()), 1 / n_rows, 1 / k)


def _truth(attacked: AttackedRows, people: IntArray) -> tuple[Truth, IntArray]:
    """Everybody who is looked up has a true value of their own."""
    counts = np.bincount(attacked.values[attacked.values >= 0], minlength=attacked.rows.n_values)
    numbers = np.arange(people.size)
    truth = Truth.of(numbers, attacked.values[people], people.size, attacked.rows.n_values)
    return Truth(truth.pairs, truth.people, int(counts.argmax())), numbers


def _drawn(people: IntArray, n_others: int, random: np.random.Generator) -> IntArray:
    """Draw as many people as can be compared with all the others."""
    most = min(MOST_PEOPLE, max(1, MOST_COMPARISONS // max(n_others, 1)))
    if people.size <= most:
        return people
    return np.sort(random.choice(people, most, replace=False))


def _downcoded(
    attacked: AttackedRows, k: int, random: np.random.Generator, pulse: Pulse
) -> Achieved:
    drawn = _drawn(np.arange(attacked.class_of_row.size), attacked.values.size, random)
    classes = attacked.class_of_row[drawn]
    return downcode(
        attacked.rows.covering, classes, attacked.values_of_rows[drawn],
        np.maximum(attacked.rows.rows, k), attacked.codes, attacked.values, pulse,
    )  # fmt: skip
