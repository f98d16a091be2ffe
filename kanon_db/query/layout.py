"""Describes a publication: its relations, its columns, and the two sides of buckets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, Self
from typing import Literal as OneOf

from kanon_db.dataclasses import dataclass
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Column, Query

CellKind = OneOf["range", "set", "value"]

Shares = OneOf["of_each", "of_parts"]
"""Whether the table of shares has a share for each value, or for each part of a range."""

ANYTHING: Final = "*"
"""The label that stands for every value, and for NULL."""

ROWS: Final = "_row"
CELLS: Final = "_cel"
ROW_SUFFIXES: Final = ("", ROWS, CELLS)
"""Suffixes of the materialized view, and of the tables of its rows and of their cells."""

SHARES: Final = "_est"
"""Suffix of the table of shares of values in cells, or of the weights of values in buckets.

It is made from the other relations alone, and spares the estimator its calculation for each
question.
"""

VALUES: Final = "_val"
CODES: Final = "_cod"
"""Suffixes of the tables of distinct values, and of their codes (`kanon_db.publications.codes`)."""

CODED_SUFFIXES: Final = (*ROW_SUFFIXES, VALUES, CODES)
"""Suffixes of the relations of rows, and of the codes of their cells."""

RECODED_SUFFIXES: Final = (*CODED_SUFFIXES, SHARES)
"""Suffixes of the relations of rows with ranges and sets."""

QIT: Final = "_qit"
SAT: Final = "_sat"
LIKELY: Final = "_wgt"
SUFFIXES: Final = ("", LIKELY, QIT, SAT, SHARES, VALUES, CODES)
"""Suffixes of the view weighted by shares of buckets, that by learned weights, the quasi-identifier
table, the sensitive table, the weights of sensitive values, and the store of codes."""

DRAWN: Final = "_draws"
"""Suffix of the table of records that were drawn once, if there is one."""

"""Assignments of records to buckets."""


class Quotes(Protocol):
    """Quotes names for statements, as a session does."""

    def identifier(self, *parts: str) -> str:
        """Quote a name, or several joined by dots (schema, relation)."""


@dataclass(frozen=True)
class BucketTables:
    """The published relations of a bucketization; every name is quoted, safe in statements."""

    # Bucket numbers count from 1 and ascend with the bucket size (within a size they are a random
    # permutation), so that neither the view nor the estimator has to count a bucket's size. The
    # store of codes (`publications.codes`) repeats QIT and SAT for the estimator. Beside it are the
    # weights of sensitive values that were learned.

    view: str
    likely: str
    qit: str
    sat: str
    learned: str
    values_table: str
    codes: str
    quasi_identifiers: tuple[str, ...]
    sensitive: Mapping[str, str]  # By the attributes' own names
    bucket_id: str
    count: str
    attribute: str
    weight: str
    weights: str
    parts: str
    weighted: tuple[str, ...]  # The sensitive attributes whose values have weights
    is_likely: bool  # Whether the second view weighs by what was learned
    slot_order: str  # SQL of a row ``q``: in this order, a bucket's records take their slots
    n_buckets: int
    sizes: tuple[int, ...]
    first_bucket_ids: tuple[int, ...]
    batches: tuple[tuple[int, ...], ...]  # Of each later batch, the first bucket of each size

    @classmethod
    def of(cls, quotes: Quotes, schema: str, name: str, layout: Mapping[str, Any]) -> Self:
        """Read a publication's layout as the catalog holds it."""
        view, likely, qit, sat, learned, values, codes = (
            quotes.identifier(schema, name + suffix) for suffix in SUFFIXES
        )
        columns = ("bucket_id", "count", "attribute", "weight", "weights", "parts")
        sensitive = (layout["sensitive"], *layout.get("also_sensitive", ()))
        return cls(
            view=view,
            likely=likely,
            qit=qit,
            sat=sat,
            learned=learned,
            values_table=values,
            codes=codes,
            quasi_identifiers=tuple(map(quotes.identifier, layout["quasi_identifiers"])),
            **{column: quotes.identifier(layout[column]) for column in columns},
            sensitive={name: quotes.identifier(name) for name in sensitive},
            weighted=tuple(map(str, layout.get("weighted", ()))),
            is_likely=bool(layout.get("weighted")) and len(sensitive) == 1,
            slot_order=", ".join(
                f"q.{quotes.identifier(name)}"
                + (' COLLATE pg_catalog."C"' if name in layout["bytewise"] else "")
                for name in layout.get("placed_by", ())
            ),
            # These alone reach statements unbound, and int() admits nothing but numbers.
            n_buckets=int(layout["n_buckets"]),
            sizes=tuple(map(int, layout["sizes"])),
            first_bucket_ids=tuple(map(int, layout["first_bucket_ids"])),
            batches=tuple(tuple(map(int, batch)) for batch in layout.get("batches", ())),
        )

    @property
    def relations(self) -> list[str]:
        """The relations that readers see, quoted: the view first."""
        names = [self.view, self.qit, self.sat, self.values_table, self.codes]
        return [*names, self.learned] if self.weighted else names

    def values(self, alias: str) -> str:
        """Return SQL for the sensitive attributes of a row."""
        return ", ".join(f"{alias}.{name}" for name in self.sensitive.values())

    @property
    def buckets_of_sizes(self) -> list[int]:
        """The number of buckets of each size."""
        ends = [*self.first_bucket_ids[1:], self.n_buckets + 1]
        return [end - first for first, end in zip(self.first_bucket_ids, ends, strict=True)]

    @property
    def n_records(self) -> int:
        """The number of records in all buckets."""
        return sum(size * n for size, n in zip(self.sizes, self.buckets_of_sizes, strict=True))

    @property
    def place(self) -> str:
        """SQL for the bit of a row ``q`` of QIT, as in ``kanon.learned_join``."""
        before, lows, steps = 0, [], []
        for size, first, n in zip(
            self.sizes, self.first_bucket_ids, self.buckets_of_sizes, strict=True
        ):
            lows.append(before - n - first)
            steps.append(n)
            before += size * n
        firsts = ", ".join(map(str, self.first_bucket_ids))
        its_class = f"[width_bucket(q.{self.bucket_id}, ARRAY[{firsts}])]"
        return (
            f"(ARRAY{lows}){its_class} + q.{self.bucket_id} + (ARRAY{steps}){its_class}"
            f" * row_number() OVER (PARTITION BY q.{self.bucket_id} ORDER BY {self.slot_order})"
        )

    def size(self, bucket_id: str = "bucket_id") -> str:
        """Return SQL for a bucket's size; `bucket_id` is SQL for its number."""
        if len(self.sizes) == 1:
            return str(self.sizes[0])
        firsts = ", ".join(map(str, self.first_bucket_ids))
        sizes = ", ".join(map(str, self.sizes))
        return f"(ARRAY[{sizes}])[width_bucket({bucket_id}, ARRAY[{firsts}])]"


def weight_field(place: int) -> str:
    """Name the field of QIT's weights that has the levels of a sensitive value, in files."""
    return f"v{place}"


UNTOLD_STRENGTH: Final = 0.2
"""The strength of dependences, where a publication does not say it."""


def is_drawn_from_all(layout: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    """Whether each bucket was drawn from all records, by their values of one attribute alone."""
    # Each batch is drawn from its own records, and who stays for the next release keeps company.
    return (
        layout.get("assignment") == "random"
        and not layout.get("also_sensitive")
        and parameters.get("assignment") != "m_invariant"
        and parameters.get("batches", 1) == 1
    )


class BucketLayout(NamedTuple):
    """A bucketization with the types of its columns."""

    tables: BucketTables
    quasi_identifiers: Mapping[str, Column]
    sensitive: Mapping[str, Column]
    # How strongly the values of each attribute depend on each quasi-identifier inside of buckets,
    # beyond the estimates: the standard deviation of correlations with a half of the records
    strengths: Mapping[str, Mapping[str, float]] = MappingProxyType({})
    is_drawn_from_all: bool = False  # See :func:`is_drawn_from_all`
    is_paper: bool = False  # Whether the paper's estimator is asked for

    @property
    def columns(self) -> dict[str, Column]:
        """All columns that a query may name."""
        return {**self.quasi_identifiers, **self.sensitive}


class CellDescription(NamedTuple):
    """A column of a generalized, freeform or suppressed publication."""

    column: Column  # With the type of the original values
    # A cell is a range or a set of texts that covers the original value, or the value itself
    kind: CellKind
    element: str = ""  # SQL that follows a text of a set and makes it a value of the original type
    is_discrete: bool = True  # Whether the values of a range can be counted
    # Position in the pattern, from 1, of this column's mark; None if no cell is suppressed
    mark: int | None = None
    # Kind of shares that are published for the column; without them, all values of a cell are
    # equally likely
    shares: Shares | None = None
    # Whether some record of a cell has each value of a set, and each end of a range; not so in
    # coarsened columns
    is_tight: bool = True
    # The values that each published label stands for, as JSON (:func:`check_described`); None for
    # sets
    labels: str | None = None


def is_vague(cell: CellDescription) -> bool:
    """Whether a cell may stand for several values."""
    return cell.kind != "value" or cell.mark is not None


class RowView(NamedTuple):
    """The published relations of generalized, freeform or suppressed rows; names are quoted."""

    # The view joins a table of rows, each with the number of its cells, to a table of cells by that
    # number; rows that were loaded with their cells need no table of cells. Readers have no right
    # on either table; a dump needs both, since restoring it refreshes the view.

    # The view, and the tables of its rows, of the shares of values in cells, and of the cells
    view: str
    rows: str
    shares: str
    quasi_identifiers: tuple[str, ...]
    pattern: str | None  # The column that marks suppressed cells
    columns: tuple[str, ...]  # All columns, in their order and not quoted
    cells: str = ""
    number: str | None = None  # The column of both tables that has the number of a row's cells

    @classmethod
    def of(cls, quotes: Quotes, schema: str, name: str, layout: Mapping[str, Any]) -> Self:
        """Read a publication's layout as the catalog holds it."""
        view, rows, cells, shares = (
            quotes.identifier(schema, name + suffix) for suffix in (*ROW_SUFFIXES, SHARES)
        )
        quasi_identifiers = [cell["name"] for cell in layout["quasi_identifiers"]]
        pattern, number = layout.get("pattern"), layout.get("number")
        return cls(
            view=view,
            rows=rows,
            shares=shares,
            quasi_identifiers=tuple(map(quotes.identifier, quasi_identifiers)),
            pattern=None if pattern is None else quotes.identifier(pattern),
            columns=tuple(layout["columns"]),
            cells=cells,
            number=None if number is None else quotes.identifier(number),
        )


RARITY: Final = 0.3
"""A value is as likely in a suppressed cell as this power of how often it is kept, since frequent
values need not be suppressed. Chosen on three tables, where mean errors of counts are a third of
those with a power of 1; ``python -m benchmarks calibration``."""

LEAST_DOUBT: Final = 0.1
"""The share of the records with a suppressed cell of which nothing is known, where each value of
the column is kept very often."""


class CellLayout(NamedTuple):
    """Published rows, with the values that their cells may stand for."""

    view: RowView
    cells: Mapping[str, CellDescription]  # Every column that a query may name
    left_out: int = 0  # Records of the source without a row in the view
    n_rows: int = 0  # Rows of the view
    # Whether the paper's estimator is asked for: suppressed cells have each value as often as kept
    # cells have it
    is_paper: bool = False
    k: int = 1  # The least number of rows that share the values they keep

    @property
    def rarity(self) -> float:
        """The power of how often a value is kept that says how likely suppressed cells have it."""
        return 1.0 if self.is_paper else RARITY

    @property
    def columns(self) -> dict[str, Column]:
        """All columns that a query may name."""
        return {name: cell.column for name, cell in self.cells.items()}


class Lookup(NamedTuple):
    """A table joined to a publication, with at most one row for each value of its join column."""

    relation: str  # Schema-qualified and quoted
    key: Column  # Join column of the table
    on: Column  # Join column of the publication


# Labels of a hierarchy as the sets of values that they stand for, as SQL.
#
# The catalog keeps them as JSON: ``values``, in an order in which each label's values follow each
# other, and ``labels``, each with the places of its first and its last value, from 0. A value is
# the label of itself, and ``*`` that of anything, NULL too.


def texts(described: str) -> str:
    """Write all values as one array, ``texts``.

    `described`: SQL of the JSON, as jsonb.
    """
    values = f"jsonb_array_elements_text({described} -> 'values')"
    return f"SELECT array_agg(t.v ORDER BY t.i) AS texts FROM {values} WITH ORDINALITY AS t (v, i)"


def labels(described: str) -> str:
    """Write each ``label`` with the places of its ``first`` and its ``last`` value."""
    values = f"{described} -> 'values'"
    return (
        "SELECT e.x ->> 0 AS label, (e.x ->> 1)::int AS first, (e.x ->> 2)::int AS last"
        f" FROM jsonb_array_elements({described} -> 'labels') AS e (x)"
        " UNION ALL SELECT t.v, t.i::int - 1, t.i::int - 1"
        f" FROM jsonb_array_elements_text({values}) WITH ORDINALITY AS t (v, i)"
        f" UNION ALL SELECT '{ANYTHING}', 0, jsonb_array_length({values}) - 1"
    )


def members_of(label: str, alias: str, texts_sql: str) -> str:
    """Write the values of a label as an array.

    `alias`: A row of :func:`labels`, joined by the label, if it has one.
    """
    # `texts_sql`: the array of :func:`texts`. Only that of labels that occur is cut, which takes
    # long.
    nothing = f"CASE {label} WHEN '{ANYTHING}' THEN ARRAY[NULL::text] ELSE '{{}}' END"
    cut = f"({texts_sql})[{alias}.first + 1 : {alias}.last + 1]"
    return f"CASE WHEN num_nulls({label}) > 0 THEN ARRAY[NULL::text] ELSE {cut} || {nothing} END"


def check_described(described: object) -> str | None:
    """Return what the catalog has as JSON again; None if it is not what is described above."""
    if not isinstance(described, Mapping):
        return None
    values, spans = described.get("values"), described.get("labels")
    if not isinstance(values, list) or not isinstance(spans, list) or not values:
        return None
    if not all(_is_span(span, len(values)) for span in spans):
        return None
    texts = [*values, *(span[0] for span in spans), ANYTHING]
    if not all(isinstance(text, str) for text in texts) or len(set(texts)) < len(texts):
        return None
    return json.dumps({"values": values, "labels": spans}, ensure_ascii=False)


def _is_span(span: Any, n_values: int) -> bool:
    if not isinstance(span, list) or len(span) != 3:
        return False
    first, last = span[1:]
    return type(first) is type(last) is int and 0 <= first <= last < n_values


Side = OneOf[0, 1]
"""The side of the records with their quasi-identifiers, and that of the sensitive values."""


def condition_on(query: Query, aggregate: ex.Aggregate) -> ex.Expression | None:
    """Join the conditions of WHERE and of an aggregate's FILTER."""
    parts = [part for part in (query.where, aggregate.condition) if part is not None]
    return ex.joined(ex.And, parts)


def condition_of(query: Query, aggregate: ex.Aggregate) -> ex.Expression | None:
    """Return the condition for a record to count in an aggregate, which leaves NULLs out."""
    chosen = condition_on(query, aggregate)
    parts = [] if chosen is None else [chosen]
    if aggregate.operand is not None:
        parts.append(ex.NullTest(aggregate.operand, negated=True))
    return ex.joined(ex.And, parts)


def parts_of(condition: ex.Expression | None) -> tuple[ex.Expression, ...]:
    """Return the parts of a conjunction."""
    if condition is None:
        return ()
    return condition.parts if isinstance(condition, ex.And) else (condition,)
