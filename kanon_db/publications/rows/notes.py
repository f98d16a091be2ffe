"""How to use published rows, as the comments on the view and its columns say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kanon_db.catalog.entries import Publication
from kanon_db.counting.layout import CLASSES, SHARES, Quotes
from kanon_db.publications.notes import MADE_FOR_US, Note, counting

_USE: Mapping[str, str] = {
    "range": "A range holds the record's own value; an end in a square bracket belongs to it, one"
    " in a round bracket does not, and whole numbers and dates are shown as [first, next after the"
    " last). [90,) holds 90 and anything above. NULL stands for NULL, and (,) for anything, NULL"
    " too.",
    "label": "A label stands for several values, of which one is the record's own; the layout of"
    " the publication, in kanon.publications, says for which. NULL stands for NULL, and * for"
    " anything, NULL too.",
    "set": "A set holds the record's own value, as a text; NULL may be one of its elements.",
}


def row_notes(publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
    """Return the notes on the view, and on what readers may read besides, by their suffixes."""
    layout = publication.layout
    cells = {cell["cell"] for cell in layout["quasi_identifiers"]}
    use = ["How to use: there is a row for each record, so count(*) counts records."]
    use += [text for cell, text in _USE.items() if cell in cells]
    if layout.get("pattern") is not None:
        pattern = quotes.identifier(layout["pattern"])
        use.append(f"A suppressed cell is NULL; {pattern} tells it from a NULL of the source.")
    use.append("Records that are left out, if there are any, have no row.")
    use.append(counting(quotes.identifier(publication.name)))
    return {
        "": Note(" ".join(use), dict(_columns(publication, quotes))),
        SHARES: Note(MADE_FOR_US),
        CLASSES: Note(MADE_FOR_US),
    }


def _columns(publication: Publication, quotes: Quotes) -> Iterator[tuple[str, str]]:
    layout = publication.layout
    cells = layout["quasi_identifiers"]
    pattern = layout.get("pattern")
    for place, cell in enumerate(cells, start=1):
        column = quotes.identifier(cell["name"])
        note = "quasi-identifier, as in the source"
        if cell["cell"] == "range":
            note = (
                "quasi-identifier, as a range that holds the record's own value; NULL: it is NULL;"
                f" (,): anything, NULL too. kanon.surely({column}, x) and kanon.possibly({column},"
                " x) say whether it is x, or lies in the range x"
            )
        elif cell["cell"] == "set":
            note = (
                "quasi-identifier, as a set of texts that holds the record's own value, where NULL"
                f" may be one. kanon.surely({column}, 'x') and kanon.possibly({column}, 'x') say"
                " whether it is x; several values are separated by commas"
            )
        elif cell["cell"] == "label":
            note = (
                "quasi-identifier, as a label that stands for the record's own value among others;"
                " NULL: it is NULL; *: anything, NULL too"
            )
        elif pattern is not None:
            mark = quotes.identifier(pattern)
            note += (
                f"; suppressed, and NULL, where substr({mark}, {place}, 1) = '*'."
                f" kanon.surely({column} = x, {mark}, {place}) and kanon.possibly({column} = x,"
                f" {mark}, {place}) allow for it, with any condition on this column"
            )
        yield cell["name"], note
    if pattern is not None:
        names = ", ".join(cell["name"] for cell in cells)
        note = f"which cells are suppressed: a character for each of {names}, in this order"
        yield pattern, f"{note}; * is suppressed, . is kept"
    for name in layout["others"]:
        is_sensitive = name == layout["sensitive"]
        yield name, f"{'sensitive attribute, ' * is_sensitive}as in the source"
