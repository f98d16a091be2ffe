"""How to use the relations of a bucketization, as their comments say it."""

from __future__ import annotations

from collections.abc import Mapping

from kanon_db.catalog.entries import Publication
from kanon_db.counting.layout import BIT, QIT, SAT, SHARES, Quotes
from kanon_db.publications.notes import MADE_FOR_US, Note, counting


def bucket_notes(publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
    """Return the notes on the view, QIT, SAT and the bitmaps, by their suffixes."""
    name, layout = publication.name, publication.layout
    sensitive, bucket_id = layout["sensitive"], layout["bucket_id"]
    count, weight = (quotes.identifier(layout[column]) for column in ("count", "weight"))
    view, qit, sat, bucket, value = (
        quotes.identifier(part) for part in (name, name + QIT, name + SAT, bucket_id, sensitive)
    )
    bucket_note = "the bucket: only records and values of the same bucket can belong together"
    return {
        "": Note(
            f"How to use: count with sum({weight}), never with count(*), and average with"
            f" sum(x * {weight}) / sum({weight}): there is a row for each record and each value of"
            f" its bucket, and the weights of a record add up to 1. {counting(view)}",
            {
                **dict.fromkeys(
                    layout["quasi_identifiers"],
                    f"quasi-identifier, as in the source; sum({weight}) is exact if conditions are"
                    " only on quasi-identifiers",
                ),
                sensitive: "sensitive attribute: each value of the record's bucket, of which one is"
                " its own",
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
            f"How to use: sum({count}), not count(*), is exact for conditions on {value}. For"
            f" conditions on quasi-identifiers as well use the view {view}, which joins this table"
            f" with {qit} on {bucket}, or kanon.estimate_count.",
            {
                bucket_id: bucket_note,
                sensitive: "sensitive attribute: a value that occurs in the bucket",
                layout["count"]: "how many records of the bucket have this value: sum it instead of"
                " counting rows",
            },
        ),
        BIT: Note(MADE_FOR_US),
        SHARES: Note(MADE_FOR_US),
    }
