"""Lays out and writes QIT and SAT, the weights of sensitive values, and the notes on all of them.

The weights say how likely each value of a bucket is for each of its records. They are learned from
QIT and SAT alone, so that readers could calculate them themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.buckets import (
    BucketContents,
    BucketedRecords,
    BucketSetting,
    WeightUnits,
    in_slots,
)
from kanon_db.algorithms.bucketization.strengths import HiddenDependence, Weigh
from kanon_db.algorithms.bucketization.value_model import learn_levels
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    CodeArray,
    FloatArray,
    IntArray,
    taken,
    unpack_levels,
)
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.catalog.entries import Publication, Source, published_schema
from kanon_db.catalog.names import free_column_name
from kanon_db.publications.buckets.learned_weights import is_sound, read_weights
from kanon_db.publications.codes import CodeTables, Store
from kanon_db.publications.relations import (
    FOR_THE_ESTIMATOR,
    Note,
    StagedRelations,
    counting_note,
    number_of_row,
)
from kanon_db.publications.results import Check
from kanon_db.query.layout import (
    CODES,
    DRAWN,
    LIKELY,
    QIT,
    SAT,
    SHARES,
    VALUES,
    BucketTables,
    Quotes,
)
from kanon_db.randomness import SecureRandom
from kanon_db.session import Session
from kanon_db.session.protocol import Row, Value
from kanon_db.transfer.columns import (
    fix_labels,
    inverse_permutation,
    number_bytes,
    with_numbers,
)
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import CodedColumn, DistinctCombinations, DistinctValues, RankedColumn


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
        "weight": free_column_name("weight", columns),
        "weights": free_column_name("weights", columns),
        "parts": free_column_name("parts", columns),
        "weighted": [],
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


_PAIRS_AT_ONCE: Final = 1 << 18
"""Rows that are written by one statement, which keeps some copies of what is bound."""


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


# The attributes whose values are learned, and learned from.


_MOST_VALUES: Final = 512
"""Of all attributes together."""

_MOST_PLACES: Final = 1 << 33
"""Records times values."""

_MOST_OPERATIONS: Final = 100_000
"""Sum of (S + 1)**2 over the bucket sizes S."""


def most_values(n_records: int) -> int:
    """Return how many values are learned from at most, in a table of so many records."""
    return min(_MOST_VALUES, _MOST_PLACES // n_records)


def learnable_attributes(
    sensitive: Mapping[str, int], others: Mapping[str, int], sizes: Sequence[int], n_records: int
) -> list[str]:
    """Choose the attributes whose values are learned, or learned from.

    Parameters
    ----------
    sensitive, others : mapping of str to int
        How many values each sensitive attribute, and each quasi-identifier, has.
    sizes : sequence of int
        Those of buckets.
    n_records : int

    Returns
    -------
    list of str
        The sensitive attributes first, then quasi-identifiers, those with few values first.

    Examples
    --------
    >>> learnable_attributes({"ill": 12}, {"age": 73, "name": 9000, "sex": 2}, [4, 5], 10_000)
    ['ill', 'sex', 'age']
    """
    if sum((size + 1) ** 2 for size in sizes) > _MOST_OPERATIONS:
        return []  # it would take too long
    budget, found = most_values(n_records), []
    for name, n_values in sensitive.items():
        if n_values <= budget:
            budget -= n_values
            found.append(name)
    for name, n_values in sorted(others.items(), key=lambda one: one[1]):
        if n_values > budget:
            break
        budget -= n_values
        found.append(name)
    return found


Thresholds: TypeAlias = Callable[[str, Sequence[str | None], IntArray], Sequence[Fraction]]
"""Returns the largest weight that each value may have, from the name of a sensitive attribute, and
the texts and numbers of its values."""

_MOST_WEIGHTS: Final = 1 << 28
"""Records times values, above which nothing is learned: levels are held in memory."""


def write_weights(
    staging: StagedRelations,
    tables: BucketTables,
    layout: Mapping[str, Any],
    placed: Sequence[RankedColumn],
    columns: Sequence[CodedColumn],
    learned_attributes: AbstractSet[str],
    found: DistinctCombinations,
    contents: BucketContents,
    positions: AnyIntArray,
    by_bucket: AnyIntArray,
    thresholds: Thresholds | None,
    random: SecureRandom,
) -> tuple[list[str], int, dict[str, dict[str, float]]]:
    """Learn how likely each value of a bucket is for each record, and write it as weights.

    The table has a row for each sensitive value, with the weight of every record: a level is
    between 0 and 255, and stands for the weight ``level / parts``. Levels are kept as bitmaps of
    their binary digits, the lowest first, with a bit for each slot, in the order of
    :func:`~kanon_db.algorithms.bucketization.buckets.in_slots`. Nothing but QIT and SAT is learned
    from. Weights that leave more unexplained between buckets than equal shares do are not written.

    Parameters
    ----------
    layout : mapping
        The names of the columns.
    placed : sequence of RankedColumn
        All quasi-identifiers.
    columns : sequence of CodedColumn
        The quasi-identifiers to learn from.
    learned_attributes : set of str
        The sensitive attributes whose values are learned.
    found : DistinctCombinations
    contents : BucketContents
    positions : ndarray of int, shape (n_records,)
        The bit of each record.
    by_bucket : ndarray of int, shape (n_records,)
        The records of each bucket, in a random order.
    thresholds : callable, optional
        None where nothing is to be learned.
    random : SecureRandom

    Returns
    -------
    weighted : list of str
        The sensitive attributes whose values have weights.
    planes : int
        The largest number of binary digits that levels have.
    strengths : dict
        How strongly each attribute depends on each quasi-identifier beyond the estimates.
    """
    session = staging.session
    pulse = Pulse(heartbeat=session.heartbeat, on_done=session.done)
    of_which = "" if len(tables.sensitive) == 1 else f"''::text AS {tables.attribute}, "
    staging.create_table(
        SHARES,
        f"SELECT {of_which}{tables.values('s')}, ''::bytea AS {tables.weights},"
        f" 0 AS {tables.parts} FROM {tables.sat} AS s",
        uncompressed=[layout["weights"]],
    )
    written, planes, strengths = [], 0, {}
    every = {column.name: taken(column.codes, by_bucket) for column in placed}
    starts = np.append(0, np.cumsum(contents.sizes))
    in_buckets = [taken(codes, contents.codes).astype(np.int32) for codes in found.values.T]
    for name, values, own in zip(tables.sensitive, found.columns, in_buckets, strict=True):
        n_values = len(values.labels)
        may_learn = name in learned_attributes and n_values * by_bucket.size <= _MOST_WEIGHTS
        learned = weigh = None
        if thresholds is not None and may_learn:
            gathered = [every[column.values.column.name] for column in columns]
            records = BucketedRecords(gathered, own, starts, n_values)
            counts = np.bincount(own, minlength=n_values).astype(np.int64)
            session.step("learning how likely values are")
            learned = learn_levels(
                records, thresholds(name, values.labels, counts), random.generator(), pulse
            )
        session.step("measuring how strongly values depend on quasi-identifiers")
        records = BucketedRecords([*every.values()], own, starts, n_values)
        others = [one for one in in_buckets if one is not own]
        hidden = HiddenDependence(records, others, _batch_of_buckets(tables))
        if learned is not None:
            weigh = _weigher_of(learned)
            if not hidden.explains(weigh):
                learned = weigh = None
        of_columns = np.round(hidden.strengths(weigh), 3).tolist()
        strengths[name] = dict(zip([column.name for column in placed], of_columns, strict=True))
        if learned is None:
            continue
        session.step("writing the weights of values")
        _insert_weights(session, tables, name, values, learned, taken(positions, by_bucket))
        written.append(name)
        planes = max(planes, int(learned[1].most.max()).bit_length())
    return written, planes, strengths


def _batch_of_buckets(tables: BucketTables) -> IntArray:
    """Return the number of each bucket's batch, by bucket."""
    batches: IntArray = np.zeros(tables.n_buckets, np.int64)
    for firsts in tables.batches:
        first = np.repeat(np.array(firsts), tables.buckets_of_sizes)
        batches += np.arange(1, tables.n_buckets + 1) >= first
    return batches


def _weigher_of(learned: tuple[npt.NDArray[np.uint8], WeightUnits]) -> Weigh:
    levels, units = learned
    return lambda places: levels[places] / units.parts


def _insert_weights(
    session: Session,
    tables: BucketTables,
    attribute: str,
    values: DistinctValues,
    learned: tuple[npt.NDArray[np.uint8], WeightUnits],
    bits: AnyIntArray,
) -> None:
    """Write the weights of an attribute; `bits` has the bit of each row of levels."""
    levels, units = learned
    own = np.empty(bits.size, dtype=np.uint8)
    names, bound = [session.identifier(attribute)], ["v.value"]
    if len(tables.sensitive) > 1:
        names.append(tables.attribute)
        bound.append(f"{session.literal(attribute)}::text")
    for code, (most, parts) in enumerate(
        zip(units.most.tolist(), units.parts.tolist(), strict=True)
    ):
        session.done(code, len(values.labels))
        own[bits] = levels[:, code]
        planes = [
            np.packbits(own >> digit & 1, bitorder="little").tobytes()
            for digit in range(int(most).bit_length())
        ]
        session.fetch(
            f"INSERT INTO {tables.learned} ({', '.join(names)}, {tables.parts}, {tables.weights})"
            f" SELECT {', '.join(bound)}, $1::int4, $2::bytea FROM {values.table} AS v"
            " WHERE v.code = $3::int4",
            str(parts),
            b"".join(planes),
            str(code),
        )


def check_weights(
    session: Session, tables: BucketTables, codes: CodeTables, thresholds: Thresholds | None
) -> Check:
    """Check that weights add up to the numbers of values in each bucket, below the thresholds.

    Parameters
    ----------
    session : Session
    tables : BucketTables
    codes : CodeTables
        Those of the store, which has been checked.
    thresholds : Thresholds, optional
        None where weights may have any size.
    """
    differing = above = 0
    for name in tables.sensitive:
        if name not in tables.weighted:
            continue
        in_slots = Store(session, codes).in_slots(name)
        with fix_labels(session):
            labels, counts, highest = [], [], []
            for row in read_weights(session.stream, tables, codes, name):
                bits = (in_slots == row["code"]).view(np.uint8)
                amiss, most = _judged_weights(tables, bits, row)
                differing += amiss
                labels.append(row["value"])
                counts.append(int(bits.sum()))
                highest.append(most)
            differing += tables.n_buckets * (len(labels) - len(set(labels)))  # rows that are twice
        if thresholds is not None:
            limits = thresholds(name, labels, np.array(counts, dtype=np.int64))
            above += sum(most > limit for most, limit in zip(highest, limits, strict=True))
    return weights_check(differing, None if thresholds is None else above)


def weights_check(differing: int, above: int | None) -> Check:
    """Say how many values of a bucket do not add up, and how many values exceed a threshold."""
    is_bounded = above is not None
    return Check(
        "weights of values add up to their numbers in each bucket"
        + (", none above its threshold" if is_bounded else ""),
        "0 values of a bucket differ" + (", 0 values exceed it" if is_bounded else ""),
        f"{differing} differ" + (f", {above} exceed it" if is_bounded else ""),
        holds=differing == 0 and not above,
    )


def _judged_weights(
    tables: BucketTables, bits: npt.NDArray[np.uint8], row: Row
) -> tuple[int, Fraction]:
    """Count the buckets where a value's weights do not add up, and return the largest weight."""
    if not is_sound(row, bits.size):
        return tables.n_buckets, Fraction(1)
    levels, parts = unpack_levels(row["weights"], bits.size), row["parts"]
    differing = start = 0
    for size, n_buckets in zip(tables.sizes, tables.buckets_of_sizes, strict=True):
        own = slice(start, start + size * n_buckets)
        sums, counts = (
            one[own].reshape(size, n_buckets).sum(axis=0, dtype=np.int64) for one in (levels, bits)
        )
        differing += int(np.count_nonzero(sums != counts * parts))
        start = own.stop
    return differing, Fraction(int(levels.max(initial=0)), parts)


Strengths = Mapping[str, Mapping[str, float]]
"""By sensitive attribute and quasi-identifier."""

_LOST: Final = 0.0015
"""What rounding may take from a strength."""


def check_strengths(
    session: Session,
    tables: BucketTables,
    codes: CodeTables,
    placed_by: Sequence[str],
    stated: Strengths,
) -> Check:
    """Check that no dependence is stronger, by what the buckets show, than is stated.

    `codes`: those of the store, which has been checked, as the weights have.
    """
    store = Store(session, codes)
    setting = BucketSetting.of(list(tables.sizes), tables.buckets_of_sizes)
    slots = np.empty(tables.n_records, np.int64)  # Of each record, by bucket
    slots[in_slots(np.arange(tables.n_records), setting)] = np.arange(tables.n_records)
    columns = [store.in_slots(name)[slots].astype(np.int32) for name in placed_by]
    sizes = np.repeat(setting.sizes, setting.counts)
    starts = np.append(0, np.cumsum(sizes))
    in_buckets = {name: store.in_slots(name)[slots].astype(np.int32) for name in tables.sensitive}
    amiss = 0
    for attribute, of_columns in stated.items():
        if attribute not in in_buckets:
            amiss += len(of_columns)
            continue
        n_values = store.columns[attribute].n_values
        records = BucketedRecords(columns, in_buckets[attribute], starts, n_values)
        hidden = HiddenDependence(
            records,
            [values for name, values in in_buckets.items() if name != attribute],
            _batch_of_buckets(tables),
        )
        weigh = None
        if attribute in tables.weighted:
            weigh = _weigher(session, store, tables, attribute, slots)
        shown = zip(placed_by, hidden.strengths(weigh).tolist(), strict=True)
        amiss += sum(one > of_columns.get(name, 0.0) + _LOST for name, one in shown)
    return Check(
        "values depend on quasi-identifiers no more strongly than errors allow for",
        "0 dependences are stronger", f"{amiss} are stronger", holds=not amiss,
    )  # fmt: skip


def _weigher(
    session: Session, store: Store, tables: BucketTables, attribute: str, slots: IntArray
) -> Weigh:
    """Return where the weights of records are read, by bucket."""

    def weigh(places: IntArray) -> FloatArray:
        weights = np.zeros((places.size, store.columns[attribute].n_values))
        for row in read_weights(session.stream, tables, store.tables, attribute):
            levels = unpack_levels(row["weights"], tables.n_records)
            weights[:, row["code"]] = levels[slots[places]] / float(row["parts"])
        return weights

    return weigh


def bucket_notes(publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
    """Return the notes on the view, QIT, SAT and what is made of them, by their suffixes."""
    name, layout = publication.name, publication.layout
    attributes, bucket_id = publication.all_sensitive, layout["bucket_id"]
    count, weight = (quotes.identifier(layout[column]) for column in ("count", "weight"))
    view, qit, sat, drawn, bucket = (
        quotes.identifier(part) for part in (name, name + QIT, name + SAT, name + DRAWN, bucket_id)
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
            f" its bucket, and the weights of a record add up to 1. In {drawn}, if there is such a"
            f" table, count(*) is right. {counting_note(view)}",
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
        LIKELY: Note(
            f"How to use: count with sum({weight}), as in {view}. A weight is how likely the record"
            " has the value by what publishing learned from the other relations, where it learned"
            " anything; else the share of the bucket's records that have it. A record's weights add"
            f" up to about 1, and those of a value in a bucket to its {count}."
            f" {counting_note(view)}",
            {
                **dict.fromkeys(layout["quasi_identifiers"], "quasi-identifier, as in the source"),
                **dict.fromkeys(
                    attributes,
                    "sensitive attribute: each value of the record's bucket, of which one is its"
                    " own",
                ),
                layout["weight"]: "how likely the record has this value: sum it instead of counting"
                " rows",
            },
        ),
        VALUES: Note(FOR_THE_ESTIMATOR),
        CODES: Note(FOR_THE_ESTIMATOR),
        SHARES: Note(FOR_THE_ESTIMATOR),
    }
