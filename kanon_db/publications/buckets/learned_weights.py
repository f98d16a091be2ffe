"""Reads how likely the sensitive values of a bucket are for each record, and adds it up.

See `kanon_db.publications.buckets.bucket_relations` for the table of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, FloatArray, unpack_levels
from kanon_db.dataclasses import dataclass
from kanon_db.publications.codes import Chunk, CodeTables, Store
from kanon_db.query.layout import BucketTables
from kanon_db.session.protocol import Row
from kanon_db.transfer.columns import label

_MOST_PLANES: Final = 8
"""Binary digits of a level."""

Stream = Callable[..., Iterator[Row]]
"""Runs a statement, and keeps a number of its rows at a time, as a session does."""


def read_weights(
    stream: Stream,
    tables: BucketTables,
    codes: CodeTables,
    name: str,
    needed: Sequence[int] | None = None,
) -> Iterator[Row]:
    """Read the ``weights`` of values of an attribute, with their ``code``, ``value`` and ``parts``.

    `needed`: the codes of some; weights that are not there are NULL.
    """
    own = tables.sensitive[name]
    value, bound = label(f"v.{own}"), []
    equal = f"{value} IS NOT DISTINCT FROM {label(f'w.{own}')}"
    if len(tables.sensitive) > 1:
        equal += f" AND w.{tables.attribute} = $1::text"
        bound = [name]
    some = ""
    if needed is not None:
        some = f" AND v.{codes.code} = ANY ('{{{', '.join(map(str, needed))}}}'::int4[])"
    return stream(
        1,
        f"SELECT {value} AS value, v.{codes.code} AS code, w.{tables.weights} AS weights,"
        f" w.{tables.parts} AS parts FROM {codes.values} AS v LEFT JOIN {tables.learned} AS w"
        f" ON {equal} WHERE v.{codes.column_no} = {codes.columns[name].number}{some}",
        *bound,
    )


def is_sound(row: Row, n_records: int) -> bool:
    """Whether these are weights as they are written: a restored table may have others."""
    n_planes, rest = divmod(len(row["weights"] or b""), (n_records + 7) // 8)
    return 1 <= n_planes <= _MOST_PLANES and not rest and (row["parts"] or 0) > 0


class ChosenValues(NamedTuple):
    """The sensitive values of a group, by their codes."""

    are_chosen: BoolArray  # (n_values,)
    x: FloatArray | None  # (n_values,): what is summed of each; NaN for nothing

    @property
    def distinct_x(self) -> list[float | None]:
        """What is summed, each number once; None for nothing."""
        if self.x is None:
            return [None]
        numbers: list[float | None] = np.unique(
            self.x[self.are_chosen & ~np.isnan(self.x)]
        ).tolist()
        return numbers

    def choose(self, x: float | None) -> BoolArray:
        """Mark the values of which this is summed."""
        return self.are_chosen if self.x is None else self.are_chosen & (self.x == x)


@dataclass(frozen=True, eq=False)
class RecordWeights:
    """What the records of each group weigh together.

    Of values that were not asked for, 0.
    """

    n: FloatArray  # (n_groups,): their number; of those that have an x, where one is summed
    of_values: FloatArray  # (n_groups, n_values): the sum of the weights of each value
    x: FloatArray  # (n_groups,): the sum of x; 0 without
    x_of_values: FloatArray  # The same of x times the weights of each value

    def of(self, groups: slice) -> RecordWeights:
        """Return those of some groups."""
        return RecordWeights(
            self.n[groups], self.of_values[groups], self.x[groups], self.x_of_values[groups]
        )

    def count(self, values: ChosenValues, *, by_others: bool = False) -> FloatArray | None:
        """Count the records of each group that have some values; None where there are none."""
        return _add_up(self.n, self.of_values, values.are_chosen, by_others=by_others)

    def sum(self, values: ChosenValues, *, is_average: bool) -> FloatArray | None:
        """Sum, or average, x of records or of values; NaN where there is nothing to average."""
        total: FloatArray | None
        number: FloatArray | None
        if values.x is None:
            total = _add_up(self.x, self.x_of_values, values.are_chosen)
            number = _add_up(self.n, self.of_values, values.are_chosen)
        else:
            total, number = np.zeros_like(self.n), np.zeros_like(self.n)
            for x in values.distinct_x:
                own = _add_up(self.n, self.of_values, values.choose(x))
                if own is not None and x is not None:
                    total, number = total + own * x, number + own
        if total is None or number is None or not is_average:
            return total
        return np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0)


def _add_up(
    total: FloatArray, of_values: FloatArray, are_chosen: BoolArray, *, by_others: bool = False
) -> FloatArray | None:
    """Add up what values weigh together; of most values, what the others leave of a total."""
    if not are_chosen.any():
        return None
    if by_others or is_most(are_chosen):
        rest: FloatArray = total - of_values[:, ~are_chosen].sum(axis=1)
        return rest
    own: FloatArray = of_values[:, are_chosen].sum(axis=1)
    return own


def is_most(are_chosen: BoolArray) -> bool:
    """Whether more than half of the values are chosen."""
    return 2 * int(are_chosen.sum()) > are_chosen.size


def find_needed_values(groups: Sequence[ChosenValues], *, by_others: bool) -> BoolArray:
    """Mark the values whose weights are added up."""
    if len(groups) != 1 or groups[0].x is not None:
        return np.ones(groups[0].are_chosen.size, np.bool_)
    ((are_chosen, _),) = groups
    return ~are_chosen if by_others or is_most(are_chosen) else are_chosen


class WeighedSlots(Protocol):
    """The slots of a chunk whose weights are added up."""

    @property
    def chunk(self) -> Chunk:
        """The chunk."""

    def levels(self, name: str) -> AnyIntArray:
        """Return the level of a weight for each slot, where these are read with the codes."""


class WeighedRecords(Protocol):
    """Where the weights of records are added up, by group."""

    def begin(self) -> Any:
        """Return where the records of a chunk are entered."""

    def put(self, slots: WeighedSlots, group: AnyIntArray, x: FloatArray | None) -> None:
        """Enter the records of a chunk; a group beyond the last one is none."""

    def __add__(self, other: Any) -> Any:
        """Add those of other chunks."""

    def weights(self) -> RecordWeights | None:
        """Return what all records weigh; None where that is not known."""


class StoredWeights:
    """The weights of a sensitive attribute's values, for the records of each group.

    The group of each record, and what is summed of it, are kept by its slot among those of all
    chunks, as the published weights are.
    """

    def __init__(
        self,
        stream: Stream,
        store: Store,
        tables: BucketTables,
        attribute: str,
        needed: BoolArray,
        n_groups: int,
        *,
        is_summed: bool,
    ) -> None:
        self._stream, self._store = stream, store
        self._tables, self._attribute = tables, attribute
        self._needed, self._n_groups = needed, n_groups
        n_records = tables.n_records
        self._group = np.full(n_records, n_groups, np.min_scalar_type(n_groups))
        self._x = np.zeros(n_records) if is_summed else None

    def put(self, slots: WeighedSlots, group: AnyIntArray, x: FloatArray | None) -> None:
        """Enter the records of a chunk; a group beyond the last one is none."""
        if x is not None and self._x is not None:
            has = ~np.isnan(x)
            slots.chunk.put(self._x, np.where(has, x, 0))
            group = np.where(has, group, self._n_groups)
        slots.chunk.put(self._group, group)

    def begin(self) -> StoredWeights:
        """Return the same: all chunks are entered in one place."""
        return self

    def __add__(self, other: StoredWeights) -> StoredWeights:
        """Return the same."""
        return self

    def weights(self) -> RecordWeights | None:
        """Add up the published weights of some values; None where these are not sound."""
        n_groups, n_records = self._n_groups, self._group.size
        of_values, x_of_values = (np.zeros((n_groups, self._needed.size)) for _ in range(2))
        masks = self._masks() if n_groups <= _FEW and self._x is None else None
        if masks is None:
            n, x = self._by_group(None)
        else:
            n, x = np.array([float(mask.bit_count()) for mask in masks]), np.zeros(n_groups)
        needed = np.flatnonzero(self._needed).tolist()
        codes, n_read = self._store.tables, 0
        for row in read_weights(self._stream, self._tables, codes, self._attribute, needed):
            self._store.session.heartbeat()
            if not is_sound(row, n_records):
                return None
            packed, parts, code = row["weights"], row["parts"], row["code"]
            if masks is not None:
                of_values[:, code] = [
                    _sum_levels(packed, (n_records + 7) // 8, mask) / parts for mask in masks
                ]
            else:
                sums = self._by_group(unpack_levels(packed, n_records))
                of_values[:, code], x_of_values[:, code] = sums / parts
            n_read += 1
        return RecordWeights(n, of_values, x, x_of_values) if n_read == len(needed) else None

    def _by_group(self, levels: NDArray[np.uint8] | None) -> FloatArray:
        """Add up levels, or 1 for each record, and the same times x: shape (2, n_groups)."""
        sums = np.zeros((2, self._n_groups + 1))
        step = max(_AT_ONCE, self._n_groups)
        for some in (slice(first, first + step) for first in range(0, self._group.size, step)):
            group = self._group[some].astype(np.intp)
            own = None if levels is None else levels[some].astype(np.float64)
            sums[0] += np.bincount(group, own, self._n_groups + 1)
            if self._x is not None:
                x = self._x[some]
                sums[1] += np.bincount(group, x if own is None else own * x, self._n_groups + 1)
        return sums[:, :-1]

    def _masks(self) -> list[int]:
        """Return the records of each group, a bit for each."""
        return [
            int.from_bytes(np.packbits(self._group == g, bitorder="little").tobytes(), "little")
            for g in range(self._n_groups)
        ]


_AT_ONCE: Final = 1 << 16
"""Records that are added up together, so that copies of what they have are small."""

_FEW: Final = 16
"""Groups whose bits are counted one by one: as fast as adding up the levels of all records."""


def _sum_levels(packed: bytes, length: int, mask: int) -> int:
    """Add up the levels of some records, from the planes of their binary digits."""
    planes = (packed[at : at + length] for at in range(0, len(packed), length))
    return sum(
        (int.from_bytes(plane, "little") & mask).bit_count() << digit
        for digit, plane in enumerate(planes)
    )
