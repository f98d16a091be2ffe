"""Finding the classes of the records of one part, where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding import Constraint, Microdata, cells_of_classes
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Attribute
from kanon_db.publications.generalized import methods
from kanon_db.publications.generalized.kind import find_classes
from kanon_db.publications.generalized.request import GeneralizedRequest
from kanon_db.spark.rows.cells import cell_array
from kanon_db.spark.rows.columns import SENSITIVE, code_of
from kanon_db.spark.rows.parts import Batches, codes_in
from kanon_db.spark.snapshot import RECORD

if TYPE_CHECKING:
    import pyarrow as pa

LOSS: Final = "loss"
"""What each record of the class loses, in units; 0 for a record that is left out."""

CLASS: Final = "class"
"""The number of a class among those of all parts: that of its first record."""


@dataclass(frozen=True, eq=False)
class PartSearch:
    """What each machine knows of the whole table.

    Attributes
    ----------
    attributes : tuple of Attribute
    ends : list of pa.Array
        What the cells of each quasi-identifier are made of.
    request : GeneralizedRequest
        Without what the attributes and the constraint say.
    method : str
    constraint : Constraint or None
        Without records.
    seconds : float
        For the search in a part.
    passed : list of str
        Columns that are passed on.
    names : list of str
        Columns of the result: those, the cells, whether a record is left out, and
        :data:`LOSS` and :data:`CLASS` if classes are searched again.
    """

    attributes: tuple[Attribute, ...]
    ends: list[pa.Array]
    request: GeneralizedRequest
    method: str
    constraint: Constraint | None
    seconds: float
    passed: list[str]
    names: list[str]

    def run(self, part: pa.Table) -> pa.RecordBatch:
        """Find the classes of a part, and the cells of its records."""
        import pyarrow as pa

        part = part.take(pa.array(np.argsort(part.column(RECORD).to_numpy())))
        codes = codes_in(part, [code_of(place) for place in range(len(self.attributes))])
        data = Microdata(codes, self.attributes)
        constraint = self.constraint
        if constraint is not None:
            sensitive = part.column(SENSITIVE).to_numpy().astype(np.int64)
            constraint = replace(constraint, codes=sensitive)
        pulse = Pulse(self.seconds)
        search = partial(getattr(methods, self.method), request=self.request, pulse=pulse)
        found = find_classes(
            data, self.request, constraint, pulse,
            method=self.method, search=search, on_step=lambda _name: None,
        )  # fmt: skip
        classes = found.result
        is_class = np.bincount(classes + 1, minlength=1)[1:] > 0
        dense = np.append(np.cumsum(is_class) - 1, -1)[classes]
        cells = [
            cell_array(its_cells, attribute.numbers, ends, dense)
            for its_cells, attribute, ends in zip(
                cells_of_classes(data, dense), self.attributes, self.ends, strict=True
            )
        ]
        columns = [pa.concat_arrays(part.column(name).chunks) for name in self.passed]
        columns += [*cells, pa.array(dense < 0)]
        if LOSS in self.names:
            lost = np.append(Ncp.of(data).of_classes(dense), 0)[dense]
            number = np.append(_first_records(dense, part.column(RECORD).to_numpy()), 0)[dense]
            columns += [pa.array(lost), pa.array(number)]
        return pa.RecordBatch.from_arrays(columns, self.names)


def _first_records(classes: IntArray, records: IntArray) -> IntArray:
    """Return the number of the first record of each class; records ascend."""
    first = np.zeros(int(classes.max(initial=-1)) + 1, dtype=np.int64)
    kept = np.flatnonzero(classes >= 0)[::-1]
    first[classes[kept]] = records[kept]  # what is assigned last remains
    return first


def searching(known: Any) -> Batches:
    """Return the function that searches the part of a partition.

    Parameters
    ----------
    known : Broadcast
        Of something that can ``run``, such as :class:`PartSearch`.
    """

    def search(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        part = [batch for batch in batches if batch.num_rows]
        if part:
            yield known.value.run(pa.Table.from_batches(part))

    return search
