"""Lays out and writes QIT and SAT, the composition of buckets, and the notes on all of them.

The composition of buckets says how values go together. It follows from the SAT alone, so that
readers could calculate it themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.buckets import (
    BucketContents,
    BucketSetting,
    Composition,
    composition,
)
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, taken
from kanon_db.catalog.entries import Publication, Source, published_schema
from kanon_db.catalog.names import free_column_name
from kanon_db.publications.relations import (
    FOR_THE_ESTIMATOR,
    DecodedRows,
    Note,
    StagedRelations,
    counting_note,
    number_of_row,
)
from kanon_db.publications.results import Check
from kanon_db.query.formulas import MOST_CORRECTED
from kanon_db.query.layout import BIT, QIT, SAT, SHARES, BucketTables, Quotes
from kanon_db.randomness import SecureRandom
from kanon_db.session import Session, fetch_one
from kanon_db.session.protocol import Value
from kanon_db.transfer.columns import inverse_permutation, number_bytes, with_numbers
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import CodedColumn, DistinctCombinations


def tables_of(session: Session, publication: Publication) -> BucketTables:
    """Find the relations of a publication."""
    return BucketTables.of(session, published_schema(session), publication.name, publication.layout)


def first_bucket_ids(setting: BucketSetting) -> list[int]:
    """Return the lowest bucket number of each size."""
    firsts: list[int] = (1 + setting.counts.cumsum() - setting.counts).tolist()
    return firsts


def bucket_layout(source: Source, setting: BucketSetting) -> dict[str, Any]:
    """Choose the layout of a publication: what the catalog keeps for :meth:`BucketTables.of`."""
    columns = [*source.quasi_identifiers, *source.all_sensitive]
    return {
        "quasi_identifiers": list(source.quasi_identifiers),
        "sensitive": source.sensitive,
        **({"also_sensitive": list(source.also_sensitive)} if source.also_sensitive else {}),
        "bucket_id": free_column_name("bucket_id", columns),
        "count": free_column_name("count", columns),
        "attribute": free_column_name("attribute", columns),
        "bits": free_column_name("bits", columns),
        "with_bitmaps": [],
        "weight": free_column_name("weight", columns),
        "directions": free_column_name("directions", columns),
        "hidden": free_column_name("hidden", columns),
        "n_buckets": setting.n_buckets,
        "sizes": setting.sizes.tolist(),
        "first_bucket_ids": first_bucket_ids(setting),
    }


def number_buckets(setting: BucketSetting, random: SecureRandom) -> CodeArray:
    """Return the published number of each bucket; numbers are random within each size."""
    numbers = np.empty(setting.n_buckets, dtype=np.int32)
    for first, n_buckets in zip(first_bucket_ids(setting), setting.counts.tolist(), strict=True):
        own = slice(first - 1, first - 1 + n_buckets)
        numbers[own] = first + random.permutation(n_buckets)
    return numbers


def write_qit(
    staging: StagedRelations,
    tables: BucketTables,
    snapshot: Snapshot,
    bucket_ids: CodeArray,
    order: AnyIntArray,
) -> None:
    """Copy the quasi-identifiers with their bucket, in the given order."""
    places = inverse_permutation(order)
    parts: list[str] = []
    bound: list[bytes] = []
    for start in range(0, order.size, _NUMBERS_AT_ONCE):
        part = slice(start, start + _NUMBERS_AT_ONCE)
        select, numbers = _numbered_part(
            tables, snapshot, bucket_ids[part], places[part], start, len(bound)
        )
        parts.append(select)
        bound += numbers
    names = ", ".join(f"s.{name}" for name in (*tables.quasi_identifiers, tables.bucket_id))
    staging.fill_table(
        QIT,
        f"SELECT {names} FROM ({' UNION ALL '.join(parts)}) AS s ORDER BY s.{snapshot.record}",
        *bound,
    )


def write_coded_qit(
    staging: StagedRelations,
    tables: BucketTables,
    columns: Sequence[CodedColumn],
    bucket_ids: CodeArray,
    order: AnyIntArray,
) -> None:
    """Write the quasi-identifiers, given by their codes, with their bucket, in the given order."""
    named = dict(zip(tables.quasi_identifiers, columns, strict=True))
    rows = DecodedRows(staging.session, named, {tables.bucket_id: bucket_ids})
    staging.create_table(QIT, rows.shape)
    for select, bound in rows.parts(order):
        staging.session.fetch(
            f"INSERT INTO {tables.qit} ({', '.join(rows.names)}) {select}", *bound
        )


def _numbered_part(
    tables: BucketTables,
    snapshot: Snapshot,
    bucket_ids: CodeArray,
    places: CodeArray,
    start: int,
    n_bound: int,
) -> tuple[str, list[bytes]]:
    """Select the records from `start` on with their bucket, and as their number, their new place.

    Returns
    -------
    select : str
    bound : list of bytes
        What it has bound, after `n_bound` others.
    """
    table, index = snapshot.table, f"r.{snapshot.record}"
    if bucket_ids.size < snapshot.n_records:
        end = start + bucket_ids.size
        table = (
            f"(SELECT * FROM {table} AS r WHERE {index} >= {start}::int4 AND {index} < {end}::int8)"
        )
        index = f"{index} - {start}::int4"
    buckets, width = number_bytes(bucket_ids)
    order, order_width = number_bytes(places)
    numbered, (bucket_id, place) = with_numbers(
        snapshot.session,
        table,
        (n_bound + 1, index),
        (n_bound + 2, index),
        widths=(width, order_width),
    )
    names = ", ".join(f"n.{name}" for name in tables.quasi_identifiers)
    select = (
        f"SELECT {names}, n.{bucket_id} AS {tables.bucket_id}, n.{place} AS {snapshot.record}"
        f" FROM {numbered} AS n"
    )
    return select, [buckets, order]


_NUMBERS_AT_ONCE: Final = 1 << 27
"""Records whose numbers are bound as one value, which may have a gigabyte."""


def write_sat(
    staging: StagedRelations,
    tables: BucketTables,
    found: DistinctCombinations,
    contents: BucketContents,
) -> int:
    """Write how often each combination of sensitive values occurs in each bucket, by both.

    The join may change the order of the rows, but nothing in it depends on the records' order.

    Returns
    -------
    int
        People of whom a sensitive value is certain: their bucket has no other one.
    """
    session = staging.session
    session.step("writing the sensitive table")
    codes, bucket_ids, counts = contents.pairs()
    staging.create_table(
        SAT,
        f"SELECT 0 AS {tables.bucket_id}, {_named(tables, found)}, 0 AS {tables.count}"
        f" FROM {found.table} AS v",
    )
    for start in range(0, codes.size, _PAIRS_AT_ONCE):
        session.done(start, codes.size)
        some = slice(start, start + _PAIRS_AT_ONCE)
        _insert_pairs(session, tables, found, codes[some], bucket_ids[some], counts[some])
    sizes, is_certain = contents.sizes, np.zeros(contents.sizes.size, dtype=np.bool_)
    starts = np.cumsum(sizes) - sizes
    for values in found.values.T:
        codes = taken(values, contents.codes)
        least, most = (one.reduceat(codes, starts) for one in (np.minimum, np.maximum))
        is_certain |= least == most
    return int(sizes[is_certain].sum())


def _named(tables: BucketTables, found: DistinctCombinations) -> str:
    """Select the values of a row ``v`` by the names of their columns."""
    named = zip(found.values_in("v"), tables.sensitive.values(), strict=True)
    return ", ".join(f"{value} AS {name}" for value, name in named)


_PAIRS_AT_ONCE: Final = 1 << 23
"""Rows that are written by one statement, so that what is bound stays small."""


def _insert_pairs(
    session: Session,
    tables: BucketTables,
    found: DistinctCombinations,
    codes: AnyIntArray,
    bucket_ids: CodeArray,
    counts: CodeArray,
) -> None:
    """Insert rows of the SAT, which come by code."""
    firsts = np.flatnonzero(np.diff(codes, prepend=-1))
    ends = [*firsts[1:].tolist(), codes.size]
    bound: list[Value] = [
        list(map(str, one)) for one in (codes[firsts].tolist(), firsts.tolist(), ends)
    ]
    bucket_id, count = (number_of_row(one, bound) for one in (bucket_ids, counts))
    session.fetch(
        f"INSERT INTO {tables.sat} ({tables.bucket_id}, {', '.join(tables.sensitive.values())},"
        f" {tables.count}) SELECT {bucket_id}, {', '.join(found.values_in('r'))}, {count} FROM"
        f" (SELECT {', '.join(found.values_in('v'))}, generate_series(f.low, f.high - 1) AS i FROM"
        " unnest($1::text[]::int4[], $2::text[]::int4[], $3::text[]::int4[]) AS f (code, low, high)"
        f" JOIN {found.table} AS v ON v.code = f.code) AS r",
        *bound,
    )


MOST_VALUES: Final = 128
"""With more, questions would take too long, and the paper's estimator answers."""

_AMISS: Final = """
SELECT count(*) AS n FROM {} AS c
WHERE (coalesce(cardinality(c.{}), 0) <> $1::int4 OR coalesce(cardinality(c.{}), 0) <> $1::int4)
"""


def write_composition(
    staging: StagedRelations,
    tables: BucketTables,
    found: DistinctCombinations,
    contents: BucketContents,
    *,
    is_random: bool,
) -> dict[str, Any]:
    """Write the directions in which buckets differ, a row for each value of each attribute.

    Parameters
    ----------
    found : DistinctCombinations
    contents : BucketContents
    is_random : bool
        Whether records of the whole table were drawn into each bucket. Of more than 64 values,
        buckets of records that were gathered tell too little; the table then has no rows.

    Returns
    -------
    dict
        What the catalog keeps, see :class:`~kanon_db.query.layout.Spectrum`: the ``spectrum`` of
        the attribute, or of several the ``spectra`` by their names; None where buckets do not
        differ, or there are too many values.
    """
    staging.session.step("finding how the values of buckets go together")
    spectra: dict[str, dict[str, list[float]] | None] = {}
    lines: dict[str, str] = {}
    for name, column, values in zip(tables.sensitive, found.columns, found.values.T, strict=True):
        spectra[name], lines[name] = None, "[]"
        if is_composed(len(column.labels), is_random=is_random):
            codes = taken(values, contents.codes)
            its = composition(codes, contents.sizes, len(column.labels))
            spectra[name] = composition_layout(its)
            if spectra[name] is not None:
                rows = zip(its.directions.tolist(), its.hidden.tolist(), strict=True)
                lines[name] = json.dumps(
                    [
                        {"code": code, "directions": one, "hidden": other}
                        for code, (one, other) in enumerate(rows)
                    ]
                )
    is_one = len(spectra) == 1
    selected = []
    for place, (own, column) in enumerate(zip(tables.sensitive, found.columns, strict=True)):
        named = [
            f"{'v.value' if one == own else 'NULL'} AS {quoted}"
            for one, quoted in tables.sensitive.items()
        ]
        if not is_one:
            named.insert(0, f"{staging.session.literal(own)}::text AS {tables.attribute}")
        selected.append(
            f"(SELECT {', '.join(named)}, r.directions AS {tables.directions},"
            f" r.hidden AS {tables.hidden} FROM json_to_recordset(${place + 1}::text::json)"
            " AS r (code int4, directions float8[], hidden float8[])"
            f" JOIN {column.table} AS v ON v.code = r.code ORDER BY r.code)"
        )
    staging.fill_table(SHARES, " UNION ALL ".join(selected), *lines.values())
    if is_one:
        return {"spectrum": next(iter(spectra.values()))}
    return {"spectra": spectra}


def is_composed(n_values: int, *, is_random: bool) -> bool:
    """Tell whether the composition of buckets is published; see :func:`write_composition`."""
    return 2 <= n_values <= (MOST_VALUES if is_random else MOST_CORRECTED)


def composition_layout(found: Composition) -> dict[str, list[float]] | None:
    """Return what the catalog keeps of a composition; None if buckets do not differ."""
    if not found.eigenvalues.size:
        return None
    return {"eigenvalues": found.eigenvalues.tolist(), "expected": found.expected.tolist()}


def composition_statement(tables: BucketTables, attribute: str) -> str:
    """Write the statement that counts the values without $1 numbers in either array.

    `attribute` is the quoted text of the attribute's name.
    """
    statement = _AMISS.format(tables.composition, tables.directions, tables.hidden)
    its = "" if len(tables.sensitive) == 1 else f" AND c.{tables.attribute} = {attribute}"
    return statement + its


def judged_composition(amiss: int) -> Check:
    """Judge how many values lack a number for some direction."""
    return Check(
        "the composition of buckets has all its directions",
        "0 values differ",
        f"{amiss} values differ",
        holds=amiss == 0,
    )


def check_composition(session: Session, tables: BucketTables) -> Check:
    """Check that each value has a number for each direction."""
    amiss = 0
    for name, spectrum in tables.spectra.items():
        found = composition_statement(tables, session.literal(name))
        amiss += fetch_one(session, found, str(len(spectrum.eigenvalues)))["n"]
    return judged_composition(amiss)


def bucket_notes(publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
    """Return the notes on the view, QIT, SAT and the bitmaps, by their suffixes."""
    name, layout = publication.name, publication.layout
    attributes, bucket_id = publication.all_sensitive, layout["bucket_id"]
    count, weight = (quotes.identifier(layout[column]) for column in ("count", "weight"))
    view, qit, sat, bucket = (
        quotes.identifier(part) for part in (name, name + QIT, name + SAT, bucket_id)
    )
    value = " and ".join(map(quotes.identifier, attributes))
    together = ""
    if len(attributes) > 1:
        together = (
            f" There is a row for each combination of {value} in a bucket, so that how these go"
            " together is exact, too."
        )
    bucket_note = "the bucket: only records and values of the same bucket can belong together"
    return {
        "": Note(
            f"How to use: count with sum({weight}), never with count(*), and average with"
            f" sum(x * {weight}) / sum({weight}): there is a row for each record and each value of"
            f" its bucket, and the weights of a record add up to 1. {counting_note(view)}",
            {
                **dict.fromkeys(
                    layout["quasi_identifiers"],
                    f"quasi-identifier, as in the source; sum({weight}) is exact if conditions are"
                    " only on quasi-identifiers",
                ),
                **dict.fromkeys(
                    attributes,
                    "sensitive attribute: each value of the record's bucket, of which one is its"
                    " own",
                ),
                layout["weight"]: "the share of the bucket's records that have this value: sum it"
                " instead of counting rows",
            },
        ),
        QIT: Note(
            "How to use: there is a row for each record, so count(*) is exact for conditions on"
            f" quasi-identifiers. Which value of {value} belongs to which record is not published:"
            f" for conditions on both use the view {view}, which joins this table with {sat} on"
            f" {bucket}, or kanon.estimate_count.",
            {
                **dict.fromkeys(
                    layout["quasi_identifiers"], "quasi-identifier of a record, as in the source"
                ),
                bucket_id: bucket_note,
            },
        ),
        SAT: Note(
            f"How to use: sum({count}), not count(*), is exact for conditions on {value}.{together}"
            f" For conditions on quasi-identifiers as well use the view {view}, which joins this"
            f" table with {qit} on {bucket}, or kanon.estimate_count.",
            {
                bucket_id: bucket_note,
                **dict.fromkeys(
                    attributes, "sensitive attribute: a value that occurs in the bucket"
                ),
                layout["count"]: "how many records of the bucket have this value: sum it instead of"
                " counting rows",
            },
        ),
        BIT: Note(FOR_THE_ESTIMATOR),
        SHARES: Note(FOR_THE_ESTIMATOR),
    }
