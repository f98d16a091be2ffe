"""What a publication is drawn from: the same for the same request of the same records.

Every bound on what readers infer is about a publication that was not chosen for what it shows. If a
publisher could look at a draft, drop it and draw again, they could keep the draft that shows most
of somebody. So there is nothing to draw again. The seed is a function of the role that publishes,
of what it asks for, and of the records, in whatever order they are; of the name of the publication,
its readers and its risks it is not. ``kanon_owner`` makes it, with a key that nobody else reads
(``sql/24_entities.sql``): the hash of guessed records is no seed, and each role has its own seeds,
so that nobody tries out guesses of what another role has published.

Two ways to ask for the same are one request: other spellings, options that decide nothing,
identifiers, equal values of another scale and, of buckets, the order of columns. Buckets depend on
their parameters only through what the search found, and so do freeform rows; that is then added to
the seed, as is of all kinds what decides about the order of published rows. Otherwise two results
of one seed, as of a search that ends by the clock, would lie side by side
(``tests/attacks/test_same_seed.py``).

What a dry run shows is drawn with another seed than the publication, which it would foretell; what
`recommend` tries, with a new one each time.

What this leaves open is in docs/privacy.md: a superuser can read the key, and other parameters, or
records that were changed on purpose, are another request.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any, Final, TypeVar

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.sorting import order_of, taken
from kanon_db.catalog.entries import Source
from kanon_db.catalog.errands import run_errand
from kanon_db.declaration import parameters_of
from kanon_db.publications.request import PublishRequest
from kanon_db.randomness import SeededRandom
from kanon_db.session import Session, fetch_one
from kanon_db.transfer.coded import CodedRecords
from kanon_db.transfer.columns import WHOLE_NUMBERS, ColumnType
from kanon_db.transfer.labels import fixed_labels, label_of
from kanon_db.transfer.records import Records
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import read_integers

Read = TypeVar("Read", bound=Records)

_IN_ANY_ORDER: Final = ("insensitive", "patterns")

_EQUAL: Final = {
    "numeric": "trim_scale({})",
    "real": "{} + 0",
    "double precision": "{} + 0",
    "interval": "justify_interval({})",
    "bpchar": "{}::text",
    "character": "{}::text",
}
"""One text for all values of a type that are equal: 1.0 and 1.00, 0 and -0, '1 day' and '24:00'."""

_ONLY_EFFORT: Final = ("time_limit", "workers")
"""Options that decide how long a search may take."""


def drawn(
    session: Session, request: PublishRequest, source: Source, records: Read,
    columns: Sequence[ColumnType],
) -> tuple[Read, SeededRandom]:  # fmt: skip
    """Put the records in a random order, and make all further randomness.

    They are sorted by hashes of what they are, and then shuffled: in the order of their hashes,
    people who are alike in everything would follow each other, and a search that has to part people
    with the same quasi-identifiers would part them by their sensitive values. Quasi-identifiers are
    sorted first, so that where they come does not depend on anything else.

    Parameters
    ----------
    session : Session
    request : PublishRequest
    source : Source
    records : Records
        In the order in which the source gave them.
    columns : sequence of ColumnType
        Their columns.

    Returns
    -------
    records : Records
        Only records that are alike in all columns may still have another order.
    random : SeededRandom
    """
    session.step("putting the records in order")
    known = [column for column in columns if column.name in source.quasi_identifiers]
    others = [column for column in columns if column not in known]
    of_known, hashes = _hashes(records, known), _hashes(records, others)
    hashes ^= of_known
    order = order_of(hashes)
    order = taken(order, order_of(taken(of_known, order), stable=True))
    asked = {
        "kind": type(request).__name__,
        **_asked(request, source),
        **{role: _plain(getattr(source, role), role) for role in request.ROLES_DRAWN},
    }
    seed = os.urandom(32)
    if not request.is_tried:
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
        digest.update(taken(hashes, order).tobytes())
        given = {"digest": digest.hexdigest(), "dry_run": request.dry_run}
        seed = bytes.fromhex(run_errand(session, "seed", **given))
    random = SeededRandom(seed)
    return records.in_order(taken(order, random.permutation(records.n_records))), random


def _asked(request: PublishRequest, source: Source) -> dict[str, Any]:
    """Return what decides about the draw, as plain JSON that no spelling changes."""
    asked = {}
    for item in parameters_of(type(request)):
        if item.name not in request.NOT_DRAWN:
            value = getattr(request, item.name)
            if item.type.options:
                used = (name for name in request.options_of_method if name not in _ONLY_EFFORT)
                value = {name: getattr(value, name) for name in used}
            elif item.name == "weights":
                from kanon_db.publications.rows.view import weights_of  # buckets do without

                weights = weights_of(source, value) or []
                value = dict(zip(source.quasi_identifiers, weights, strict=False))
            asked[item.name] = _plain(value, item.name)
    return asked


def _plain(value: Any, name: str = "") -> Any:
    """Write a value in one way: 2 and 2.0 are the same, and so are objects in any order."""
    if is_dataclass(value):
        value = {item.name: getattr(value, item.name) for item in fields(value)}
    if isinstance(value, Mapping):
        kept = (key for key in sorted(value, key=str) if key != "weight" or name == "weights")
        return {str(key): _plain(value[key], str(key)) for key in kept}
    if isinstance(value, list | tuple | set | frozenset):
        plain = [_plain(item) for item in value]
        return sorted(plain, key=json.dumps) if name in _IN_ANY_ORDER else plain
    if isinstance(value, str | bool) or value is None:
        return value
    return str(Fraction(value))


def _hashes(records: Records, columns: Sequence[ColumnType]) -> IntArray:
    """Hash each record: the exclusive or of its values' hashes, each with its column's own seed.

    The same however the records were read.
    """
    if not columns:
        return np.zeros(records.n_records, dtype=np.int64)
    with fixed_labels(records.session):
        if isinstance(records, CodedRecords):
            found = np.zeros(records.n_records, dtype=np.int64)
            for column in columns:
                coded = records.columns[column.name]
                row = fetch_one(
                    records.session,
                    f"SELECT string_agg(int8send({_hash('value', column)}), ''::bytea"
                    f" ORDER BY code) AS hashes FROM {coded.values.table}",
                )
                of_values = np.frombuffer(row["hashes"], dtype=">i8").astype(np.int64)
                found ^= taken(of_values, coded.codes)
            return found
        assert isinstance(records, Snapshot)  # noqa: S101  # there is no third way to read
        each = [_hash(f"s.{records.session.identifier(one.name)}", one) for one in columns]
        return read_integers(records, " # ".join(each), kind="int8").astype(np.int64, copy=False)


def _hash(value: str, column: ColumnType) -> str:
    """Write the hash of a value of a column; NULL has the column's own."""
    name = hashlib.sha256(column.name.encode()).digest()
    own = f"'{int.from_bytes(name[:8], 'big', signed=True)}'::int8"
    if column.type_name in WHOLE_NUMBERS:
        # The hash of an int8 folds it to four bytes, which would be another order of its own.
        high = f"hashint8extended(({value}::int8 >> 32), {own} # 1)"
        return f"coalesce(hashint8extended({value}::int8, {own}) # {high}, {own})"
    if column.type_name in _EQUAL:  # values that are equal have several texts
        text = f"({_EQUAL[column.type_name].format(value)})::text"
    else:
        text = label_of(column, value)
    return f'coalesce(hashtextextended(({text}) COLLATE pg_catalog."C", {own}), {own})'
