"""Types of records with the same cells, and the distinct cells of each column.

What depends on one cell is found once for each distinct cell, of which there are far fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.types import TEXT
from kanon_db.counting.layout import Cell, CellLayout
from kanon_db.counting.writing.cell_values import is_vague
from kanon_db.counting.writing.labels import labels, members_of, texts
from kanon_db.counting.writing.likely import Likely, add_axis
from kanon_db.counting.writing.spread import arranged, summed_attribute
from kanon_db.counting.writing.steps import Select
from kanon_db.counting.writing.writer import Request, Writer, numbered


class TypeWriter(Writer):
    """Writes the steps ``cells…`` and ``types``.

    ``c0 …`` are cells, ``m0 …`` say of them whether they are suppressed, and ``i0 …`` number the
    distinct ones of a column whose values are not known.

    Parameters
    ----------
    request : Request
    layout : CellLayout
    also : iterable of str
        Columns to tell types apart by, beside those that the request mentions.
    """

    def __init__(self, request: Request, layout: CellLayout, also: Iterable[str] = ()) -> None:
        super().__init__(request)
        self._layout = layout
        needed = [self.condition, *self.keys.values(), self.weighed]
        names = {*also, *(name for part in needed for name in ex.attributes(part))}
        self._places = {
            name: place for place, name in enumerate(name for name in layout.cells if name in names)
        }
        self._arranged = arranged(request.query, request.aggregate, layout)
        self._spread = self._arranged.spread
        summed = summed_attribute(request.query, request.aggregate, layout)
        self._summed = None if summed in self._spread else summed

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that types are told apart by, in the order of their numbers."""
        return tuple(self._places)

    def _cell(self, name: str) -> Cell:
        return self._layout.cells[name]

    def shares(self, name: str, alias: str) -> Likely | None:
        """Name what the table of shares tells of a cell of the rows with an alias."""
        return None if self._cell(name).shares is None else Likely.of(alias, self._places[name])

    def types(self, where: Sequence[str] = ()) -> None:
        """Count the records of each type.

        Parameters
        ----------
        where : sequence of str
            Conditions on the rows ``c``.
        """
        selected = {}
        for name, place in self._places.items():
            cell = self._cell(name)
            selected[f"c{place}"] = f"c.{cell.column.sql}"
            if cell.mark is not None:
                mark = f"substr(c.{self._layout.view.pattern}, {cell.mark}, 1)"
                selected[f"m{place}"] = f"{mark} = '*'"
        with_labels = [name for name in self._places if self._cell(name).labels is not None]
        self.steps.add(
            "labelled" if with_labels else "alike",
            "Records with the same cells are one type.",
            Select(
                {**selected, "n": "count(*)::float8"},
                [f"{self._layout.view.view} AS c"],
                where,
                numbered(len(selected)),
            ),
        )
        if with_labels:
            self._put_members([*selected, "n"], with_labels)
        columns, source, unknown = {"a.*": "a.*", "id": "row_number() OVER ()"}, ["alike AS a"], []
        for name, place in self._places.items():
            cell = self._cell(name)
            if not is_vague(cell):
                continue
            names = self._distinct_cells(cell, name, place)
            columns[f"i{place}"] = f"d{place}.i{place}"
            if name in self._spread or name in self._arranged.apart:
                columns |= {column: f"d{place}.{column}" for column in names}
            unknown.append(f"d{place}.u{place}")
            same_mark = f" AND d{place}.m{place} = a.m{place}" if cell.mark is not None else ""
            source.append(
                f"JOIN cells{place} AS d{place}"
                f" ON d{place}.k{place} = {key_of(f'a.c{place}')}{same_mark}"
            )
        # Where the values of some records are known, others cannot be off in the same direction.
        columns["u"] = f"greatest({', '.join(unknown)})" if unknown else "0::float8"
        comment = "Each type has a number, and its cells the numbers of their own."
        self.steps.add("types", comment, Select(columns, source))

    def _put_members(self, columns: Sequence[str], with_labels: Sequence[str]) -> None:
        """Put the sets of values in the place of the labels that stand for them."""
        found, source = {column: f"t.{column}" for column in columns}, ["labelled AS t"]
        for name in with_labels:
            place = self._places[name]
            found[f"c{place}"], join = self._members(name, f"t.c{place}")
            source.append(join)
        self.steps.add("alike", "Labels stand for sets of values.", Select(found, source))

    def _members(self, name: str, label: str) -> tuple[str, str]:
        """List what the labels of a column stand for, and write a label's set with its join."""
        place, described = self._places[name], self._cell(name).labels or ""
        json = f"{self._text(described)}::jsonb"
        self.steps.add(f"texts{place}", "The values of a hierarchy, in its order.", texts(json))
        self.steps.add(
            f"labels{place}",
            f"The first and the last value that the labels c{place} stand for.",
            labels(json),
        )
        return (
            members_of(label, f"l{place}", f"SELECT texts FROM texts{place}"),
            f"LEFT JOIN labels{place} AS l{place} ON l{place}.label = {label}",
        )

    def _distinct_cells(self, cell: Cell, name: str, place: int) -> list[str]:
        """Give the distinct cells of a column numbers, and return the columns of their shares."""
        # By their texts: joins need keys that are not NULL, and types may have no equality here.
        kept = {f"k{place}": key_of(f"a.c{place}"), f"c{place}": f"a.c{place}"}
        kept |= {f"m{place}": f"a.m{place}"} if cell.mark is not None else {}
        self.steps.add(
            f"apart{place}",
            f"The distinct cells c{place}.",
            Select({**kept, f"n{place}": "sum(a.n)"}, ["alike AS a"], group=numbered(len(kept))),
        )
        return self._share_cells(cell, name, place, {f"i{place}": "row_number() OVER ()"})

    def _share_cells(
        self, cell: Cell, name: str, place: int, number: Mapping[str, str]
    ) -> list[str]:
        """Add what the table of shares tells of the distinct cells, and return its columns."""
        numbers = {"a.*": "a.*", **number, f"u{place}": "1::float8"}
        source, names = [f"apart{place} AS a"], []
        if cell.shares is not None:
            table, attribute = self._layout.view.shares, self._text(name)
            names = ["shares"] if cell.kind == "set" else ["first", "last", "own"]
            numbers |= {f"{column}{place}": f"s.{column}" for column in names}
            numbers[f"u{place}"] = "1 - coalesce(s.known, 0)"
            source.append(
                f"LEFT JOIN {table} AS s ON s.attribute = {attribute} AND s.cell = a.c{place}::text"
            )
            if cell.kind == "range":
                add_axis(self.steps, table, attribute, place, cell.column.type.name)
        comment = "Each of them has a number, and the shares of its values."
        self.steps.add(f"cells{place}", comment, Select(numbers, source))
        return [f"{column}{place}" for column in names]

    def _text(self, text: str) -> str:
        return self.constants.write(ex.Constant(text, TEXT))


def key_of(sql: str) -> str:
    """Tell a cell from others, whatever its type, also where it is NULL."""
    return f"quote_nullable({sql}::text)"
