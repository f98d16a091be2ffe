"""Writing and checking what buckets tell of how values go together.

It follows from the SAT alone, so that readers could calculate it themselves.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kanon_db.algorithms.bucketization.composition import Composition, composition
from kanon_db.algorithms.bucketization.contents import Contents
from kanon_db.counting.layout import SHARES
from kanon_db.counting.regression import MOST_CORRECTED
from kanon_db.publications.buckets.tables import BucketTables
from kanon_db.publications.results import Check
from kanon_db.publications.staging import Staging
from kanon_db.session import Session, fetch_one
from kanon_db.transfer.values import DistinctValues

MOST_VALUES: Final = 128
"""With more, questions would take too long, and the paper's estimator answers."""

_AMISS: Final = """
SELECT count(*) AS n FROM {} AS c
WHERE coalesce(cardinality(c.{}), 0) <> $1::int4 OR coalesce(cardinality(c.{}), 0) <> $1::int4
"""


def write_composition(
    staging: Staging,
    tables: BucketTables,
    values: DistinctValues,
    contents: Contents,
    *,
    is_random: bool,
) -> dict[str, list[float]] | None:
    """Write the directions in which buckets differ, a row for each sensitive value.

    Parameters
    ----------
    contents : Contents
    is_random : bool
        Whether records of the whole table were drawn into each bucket. Of more than 64 values,
        buckets of records that were gathered tell too little; the table then has no rows.

    Returns
    -------
    dict of str to list of float, or None
        What the catalog keeps, see :class:`~kanon_db.counting.layout.Spectrum`; None if buckets do
        not differ, or there are too many values.
    """
    n_values, rows = len(values.labels), "[]"
    spectrum: dict[str, list[float]] | None = None
    if is_composed(n_values, is_random=is_random):
        staging.session.step("finding how the values of buckets go together")
        found = composition(contents.codes, contents.sizes, n_values)
        spectrum = spectrum_of(found)
        if spectrum is not None:
            lines: list[dict[str, Any]] = [
                {"code": code, "directions": one, "hidden": other}
                for code, (one, other) in enumerate(
                    zip(found.directions.tolist(), found.hidden.tolist(), strict=True)
                )
            ]
            rows = json.dumps(lines)
    staging.fill_table(
        SHARES,
        f"SELECT v.value AS {tables.sensitive}, r.directions AS {tables.directions},"
        f" r.hidden AS {tables.hidden} FROM json_to_recordset($1::text::json)"
        " AS r (code int4, directions float8[], hidden float8[])"
        f" JOIN {values.table} AS v ON v.code = r.code ORDER BY r.code",
        rows,
    )
    return spectrum


def is_composed(n_values: int, *, is_random: bool) -> bool:
    """Whether the composition of buckets is published; see :func:`write_composition`."""
    return 2 <= n_values <= (MOST_VALUES if is_random else MOST_CORRECTED)


def spectrum_of(found: Composition) -> dict[str, list[float]] | None:
    """Return what the catalog keeps of a composition; None if buckets do not differ."""
    if not found.eigenvalues.size:
        return None
    return {"eigenvalues": found.eigenvalues.tolist(), "expected": found.expected.tolist()}


def composition_statement(tables: BucketTables) -> str:
    """Write the statement that counts the values without $1 numbers in either array."""
    return _AMISS.format(tables.composition, tables.directions, tables.hidden)


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
    n_directions = 0 if tables.spectrum is None else len(tables.spectrum.eigenvalues)
    found = fetch_one(session, composition_statement(tables), str(n_directions))
    return judged_composition(found["n"])
