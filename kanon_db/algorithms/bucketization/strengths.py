"""How strongly sensitive values may depend on quasi-identifiers inside of buckets.

Who of a bucket has which of its values is hidden. But buckets are drawn at random, in cells of
similar records: how records go with values from bucket to bucket of a cell tells how they may go
inside. All follows from QIT and SAT, and from weights that do.

**Source:** our own; docs/understand/estimation.md derives it. Learning slopes from totals of groups
is ecological regression (L. Goodman 1953, G. King 1997), which holds as groups are drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.buckets import BucketedRecords
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    narrow,
    numbered,
)

USUAL: Final = 0.1
"""The standard deviation of correlations with a half of the records, before any is seen."""

_TIMES_UNSEEN: Final = 2.0
"""How many times its square is assumed of what does not show: what is balanced over buckets so that
it does not is what depends most. Where several attributes share buckets, of all: what varies
between these is then a few combinations of values that were left over."""

_LOOKED_AT: Final = 40_000
"""Records, about, of which as many are enough."""

_MOST_VALUES: Final = 128
"""Of more sensitive values, neighbors are taken together."""

_SETS, _SETS_AT_ONCE, _RANGES, _SEED = 150, 25, 40, 1
"""Sets of records and ranges of values, the same ones whenever it is measured again."""

_MOST_NAMED: Final = 3
"""Columns that a set of records is a conjunction of, at most."""

_FEW_CODES: Final = 8
"""A set has a range of the codes of a column that has more."""

_LEAST_BESIDE: Final = 4
"""Buckets on either side of a cut between cells: fewer may lie apart by chance."""

_LEAST_INSIDE: Final = 10.0
"""How much a set of records varies inside of buckets, at least, for it to tell anything."""

_WORTH: Final = 20.0
"""Sets of records that all those drawn count as: they overlap."""

_BESIDE: Final = 3.0
"""Sets of records that an assumption counts as."""

_TELLS: Final = 1e-3

Weigh: TypeAlias = Callable[[IntArray], FloatArray]
"""Returns the weights of some records, shape (n, n_values)."""


class HiddenDependence:
    """What the buckets of a publication show of the dependences that they hide.

    Sets of records are conjunctions of conditions on up to three columns, drawn by frequency.
    """

    # Directions are combinations of values that are not correlated between buckets of a cell: each
    # shows as the part `_between` of its variance. They are columns of `_directions`.

    def __init__(
        self,
        records: BucketedRecords,
        further: Sequence[CodeArray] = (),
        batches: IntArray | None = None,
    ) -> None:
        """`further`: values of other sensitive attributes, by bucket as those of the records.

        `batches`: the number of each bucket's batch, if people came later.
        """
        cells = find_cells(records, batches)
        chosen = np.argsort(cells, kind="stable")
        if records.n_records > _LOOKED_AT:
            chosen = chosen[:: -(-records.n_records // _LOOKED_AT)]
        random = np.random.default_rng(_SEED)
        sample = records.of_buckets(chosen)
        sizes = np.diff(sample.starts)
        self._n_records = sample.n_records
        self._places = np.repeat(records.starts[chosen] - sample.starts[:-1], sizes)
        self._places += np.arange(sample.n_records)
        self._part_of = _parts_of(np.bincount(records.values, minlength=records.n_values))
        self._bucket = np.repeat(np.arange(sizes.size), sizes)
        counts, *beside = [
            _count(parts[values][self._places], self._bucket, sizes.size)
            for parts, values in (
                (self._part_of, records.values),
                *((_parts_of(np.bincount(values)), values) for values in further),
            )
        ]
        self._shares = counts / np.maximum(sizes, 1)[:, np.newaxis]
        self._marks, self._named = _draw_sets(sample.columns, random)
        firsts = np.flatnonzero(np.diff(cells[chosen], prepend=-1))
        of_values = _in_cells(counts, sizes, firsts)
        between = of_values.T @ of_values
        if beside:
            # At equal numbers of the others' values, which are dealt to buckets together with these
            of_further = _in_cells(np.hstack(beside), sizes, firsts)
            inverse = np.linalg.pinv(of_further.T @ of_further, rcond=1e-4, hermitian=True)
            slopes = of_values.T @ of_further @ inverse
            between = between - slopes @ of_further.T @ of_values
            of_values = of_values - of_further @ slopes.T
        totals = counts.sum(axis=0)
        self._scale = 1 / np.sqrt(np.maximum(totals, 1))[:, np.newaxis]
        scales = self._scale * self._scale.T
        parts, self._directions = np.linalg.eigh(between * scales)
        self._between = np.maximum(parts, 0.0)
        squared = (of_values @ (self._scale * self._directions)) ** 2
        inside = np.empty(_SETS)
        products, by_chance = np.empty((2, counts.shape[1], _SETS))
        for some in (slice(at, at + _SETS_AT_ONCE) for at in range(0, _SETS, _SETS_AT_ONCE)):
            marked = _add_up(self._marks[some], sample.starts[:-1], axis=1).T.astype(np.float64)
            of_buckets = np.einsum("bs,bs,b->s", marked, marked, 1 / np.maximum(sizes, 1))
            inside[some] = marked.sum(axis=0) - of_buckets
            off = _in_cells(marked, sizes, firsts)
            products[:, some] = of_values.T @ off
            # Where values go with no records, a sum of products is as large as its parts are.
            by_chance[:, some] = squared.T @ (off * off)
        varies = inside >= _LEAST_INSIDE
        self._marks, self._named = self._marks[varies], self._named[varies]
        self._noise = inside[varies] / max(sample.n_records - sizes.size, 1)
        self._products = self._scale * products[:, varies]
        between_buckets = np.broadcast_to(self._between[:, np.newaxis], by_chance[:, varies].shape)
        self._most = between_buckets**2 * self._n_records * self._noise
        tells = between_buckets * self._n_records > _TELLS
        draws = np.zeros(tells.shape)  # 1 on average, where buckets are drawn from their cell
        np.divide(by_chance[:, varies], between_buckets * self._noise, out=draws, where=tells)
        self._chance = np.full(tells.shape, np.inf)
        np.divide(draws, between_buckets * self._n_records, out=self._chance, where=tells)
        self._inside = (np.diag(totals) - self._shares.T @ counts) * scales
        self._typical = self._weigh_directions(totals, random)
        # A half of the records varies by a quarter of their number.
        self._halves = 4 * self._noise
        usual = USUAL**2 * self._halves
        heard = usual / (usual + self._chance)
        # A set of which all buckets have as much does not show, whatever it goes with.
        varied = np.minimum(draws, 1.0)
        self._information = _WORTH / max(usual.size, 1) * heard**2 * varied
        shows = (heard * varied).sum(axis=1) / max(usual.size, 1)
        self._unseen = USUAL**2 * (_TIMES_UNSEEN - shows * (not beside))

    def _weigh_directions(self, totals: IntArray, random: np.random.Generator) -> FloatArray:
        """Return which part of the variance of ranges of values each direction has, on average."""
        drawn = random.random((2, _RANGES)) * totals.sum()
        low, high = np.sort(np.searchsorted(np.cumsum(totals), drawn), axis=0)
        low[: _RANGES // 2] = 0
        values = np.arange(totals.size)[:, np.newaxis]
        ranges = ((low <= values) & (values <= high)).astype(np.float64)
        ranges = (ranges - totals @ ranges / max(totals.sum(), 1)) / self._scale
        squares = (self._directions.T @ ranges) ** 2
        of_ranges = squares.sum(axis=0)
        squares, of_ranges = squares[:, of_ranges > 0], of_ranges[of_ranges > 0]
        shares: FloatArray = (squares / of_ranges).sum(axis=1) / max(of_ranges.size, 1)
        return shares

    def _squares(self, weigh: Weigh | None) -> FloatArray:
        """Return squared correlations of directions with sets, as if these were halves.

        Chance is taken off. Of what weights leave, where there are any; (n_directions, n_sets).
        """
        products = self._products
        if weigh is not None:
            weights = _add_parts(weigh(self._places), self._part_of)
            learned = self._scale * ((weights - self._shares[self._bucket]).T @ self._marks.T)
            slopes = np.linalg.pinv(self._inside, rcond=1e-3, hermitian=True) @ learned
            products = products - (self._directions * self._between) @ self._directions.T @ slopes
        chance = self._chance
        tells = np.isfinite(chance)
        seen = (self._directions.T @ products) ** 2
        seen = np.divide(seen, self._most, out=np.zeros_like(seen), where=tells)
        squares = np.where(tells, np.minimum(seen, 1 + chance) - chance, 0.0)
        of_halves: FloatArray = squares / self._halves
        return of_halves

    def strengths(self, weigh: Weigh | None = None) -> FloatArray:
        """Return the standard deviation of correlations inside of buckets, for each column.

        They are those with a half of the records.
        """
        squares, before = self._squares(weigh), self._squares(None)
        shown = min(self._show(squares), self._show(before))
        each = self._judge(squares, shown + self._unseen)
        judged = np.full(len(self._named.T), shown + _TIMES_UNSEEN * USUAL**2)
        if self._typical.any():  # There are two values at least
            of_columns = [self._judge(squares, each, named) for named in self._named.T]
            judged = np.array([self._typical @ own for own in of_columns])
        strengths: FloatArray = np.sqrt(np.minimum(judged, 1.0))
        return strengths

    def explains(self, weigh: Weigh) -> bool:
        """Whether weights leave less of what shows than equal shares do."""
        left, before = (self._show(self._squares(one)) for one in (weigh, None))
        return left < before

    def _show(self, squares: FloatArray) -> float:
        """Return the mean square that shows, beside what is usual."""
        information = self._information * self._typical[:, np.newaxis] * self._typical.size
        shown = max(float((information * squares).sum()), 0.0)
        return (shown + _BESIDE * USUAL**2) / (float(information.sum()) + _BESIDE)

    def _judge(
        self, squares: FloatArray, assumed: FloatArray, named: BoolArray | bool = True
    ) -> FloatArray:
        """Return the mean square of each direction, beside what is assumed of it."""
        information = np.where(named, self._information, 0.0)
        # Less than what chance shows is chance, too, and takes nothing from what is assumed.
        shown = np.maximum((information * squares).sum(axis=1), 0.0)
        judged: FloatArray = (shown + _BESIDE * assumed) / (information.sum(axis=1) + _BESIDE)
        return judged


def _count(parts: IntArray, bucket: IntArray, n_buckets: int) -> FloatArray:
    n_parts = int(parts.max(initial=-1)) + 1
    counts = np.bincount(bucket * n_parts + parts, minlength=n_buckets * n_parts)
    return counts.reshape(n_buckets, n_parts).astype(np.float64)


def _add_up(numbers: npt.NDArray[Any], firsts: IntArray, axis: int = 0) -> npt.NDArray[Any]:
    """Add up runs of rows, or of columns, which begin there; count those that are true."""
    if not firsts.size:
        return numbers
    if numbers.dtype == np.bool_:
        longest = int(np.diff(firsts, append=numbers.shape[axis]).max())
        numbers = numbers.view(np.uint8).astype(np.min_scalar_type(longest), copy=False)
    sums: npt.NDArray[Any] = np.add.reduceat(numbers, firsts, axis=axis, dtype=numbers.dtype)
    return sums


def _in_cells(totals: FloatArray, sizes: IntArray, firsts: IntArray) -> FloatArray:
    """Return how far the totals of buckets are off their cell's share, over root of size."""
    if not firsts.size:
        return totals
    n_buckets = np.diff(firsts, append=sizes.size)
    means = _add_up(totals, firsts) / np.add.reduceat(sizes, firsts)[:, np.newaxis]
    off: FloatArray = np.repeat(means, n_buckets, axis=0)
    off *= -sizes[:, np.newaxis]
    off += totals
    off /= np.sqrt(sizes)[:, np.newaxis]
    return off


def find_cells(records: BucketedRecords, batches: IntArray | None = None) -> IntArray:
    """Return the cell of each bucket: no bucket of its batch crosses the cuts between cells.

    Several buckets lie on either side; of buckets that are drawn from all records, there is one.
    """
    n_buckets = records.starts.size - 1
    cells: IntArray = np.zeros(n_buckets, np.int64) if batches is None else batches.copy()
    if not records.n_records:
        return cells
    bounds = [
        (
            np.minimum.reduceat(codes, records.starts[:-1]),
            np.maximum.reduceat(codes, records.starts[:-1]),
        )
        for codes in map(narrow, records.columns)
    ]
    waiting = np.arange(n_buckets)  # those of cells that may be cut; bounds are theirs
    while waiting.size:
        own = numbered(cells[waiting])
        sizes = np.bincount(own)
        smaller, attribute, last = np.zeros((3, sizes.size), np.int64)
        for place, (least, most) in enumerate(bounds):
            even, codes = _find_even_cuts(own, sizes, least, most)
            better = even > smaller
            smaller[better], last[better], attribute[better] = even[better], codes[better], place
        is_cut = (smaller >= _LEAST_BESIDE)[own]
        if not is_cut.all():
            kept = np.flatnonzero(is_cut)
            waiting, own = waiting[kept], own[kept]
            bounds = [(least[kept], most[kept]) for least, most in bounds]
        cut_by = narrow(attribute)[own]
        is_lower = np.zeros(waiting.size, np.bool_)
        for place, (least, _) in enumerate(bounds):
            mine = np.flatnonzero(cut_by == place)
            is_lower[mine] = least[mine] <= last[own[mine]]
        cells *= 2
        cells[waiting] += is_lower
        cells = numbered(cells)
    return cells


def _find_even_cuts(
    own: IntArray, sizes: IntArray, least: AnyIntArray, most: AnyIntArray
) -> tuple[IntArray, IntArray]:
    """Find the most even cut of each cell that no bucket crosses.

    Returns how many buckets its smaller side has, 0 where there is none, and its last lower code.
    """
    width = int(most.max()) + 1
    begins, ends = own * width + least, own * width + most
    if sizes.size * width <= _MOST_COUNTED * own.size:
        begun, below = (
            np.cumsum(np.bincount(keys, minlength=sizes.size * width).reshape(-1, width), axis=1)
            for keys in (begins, ends)
        )
        # What has begun by a code has ended there.
        sides = np.where(begun == below, np.minimum(below, sizes[:, np.newaxis] - below), 0)
        codes = sides.argmax(axis=1)
        return sides[np.arange(sizes.size), codes], codes
    begins.sort()
    ends.sort()
    last = np.cumsum(sizes) - 1
    n_lower = np.arange(1, own.size + 1) - np.repeat(last + 1 - sizes, sizes)
    sides = np.minimum(n_lower, np.repeat(sizes, sizes) - n_lower)
    sides[:-1][ends[:-1] >= begins[1:]] = 0
    sides[last] = 0
    # The first one of the most even ones
    best = np.maximum.reduceat(sides * (own.size + 1) - n_lower, last + 1 - sizes)
    places = last - sizes + -best % (own.size + 1)
    return sides[places], np.where(sides[places] > 0, ends[places] % width, 0)


_MOST_COUNTED: Final = 8
"""Codes for each bucket, at most, that are counted: beyond, sorting takes less time."""


def _draw_sets(
    columns: Sequence[AnyIntArray], random: np.random.Generator
) -> tuple[BoolArray, BoolArray]:
    """Mark the records of each set, and the columns that it is of; both by set."""
    n = columns[0].size if columns else 0
    ends = [np.cumsum(np.bincount(codes)) for codes in columns]
    marks = np.ones((_SETS, n), np.bool_)
    named = np.zeros((_SETS, len(columns)), np.bool_)
    for number in range(_SETS if n else 0):
        n_named = min(1 + int(random.random() * _MOST_NAMED), len(columns))
        named[number, np.argsort(random.random(len(columns)))[:n_named]] = True
        for column in np.flatnonzero(named[number]).tolist():
            marks[number] &= _draw_codes(ends[column], random)[columns[column]]
    return marks, named


def _draw_codes(ends: IntArray, random: np.random.Generator) -> BoolArray:
    """Choose codes by how often each occurs."""
    n_codes = ends.size
    are_chosen = np.zeros(n_codes, np.bool_)
    n_drawn = 2 if n_codes > _FEW_CODES else 1 + int(random.random() * max(n_codes // 2, 1))
    drawn = np.searchsorted(ends, random.random(n_drawn) * ends[-1], side="right")
    if n_codes > _FEW_CODES:
        are_chosen[drawn.min() : drawn.max() + 1] = True
    are_chosen[drawn] = True
    return are_chosen


def _parts_of(counts: IntArray) -> IntArray:
    """Divide values into parts, of one each where they are few, in order."""
    if counts.size <= _MOST_VALUES:
        return np.arange(counts.size)
    middle = np.cumsum(counts) - counts / 2
    parts: IntArray = (middle * _MOST_VALUES / counts.sum()).astype(np.int64)
    return np.unique(np.minimum(parts, _MOST_VALUES - 1), return_inverse=True)[1]


def _add_parts(weights: FloatArray, part_of: IntArray) -> FloatArray:
    """Add the weights of the values of each part."""
    firsts = np.flatnonzero(np.diff(part_of, prepend=-1))
    added: FloatArray = np.add.reduceat(weights, firsts, axis=1)
    return added
