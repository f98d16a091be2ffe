"""How to use the relations of a model, as their comments say it."""

from __future__ import annotations

from collections.abc import Mapping

from kanon_db.catalog.entries import Publication
from kanon_db.publications.model.layout import FEATURES
from kanon_db.publications.relations import Note
from kanon_db.query.layout import Quotes


def model_notes(publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
    """Return the notes on the table of features, by its suffix."""
    name = publication.name.replace("'", "''")
    label = quotes.identifier(publication.layout["label"])
    return {
        FEATURES: Note(
            f"How to use: SELECT * FROM kanon.classify('{name}', '{{\"feature\": value, ...}}')"
            f" tells {label}, with the share of members that agree; kanon.classify_all('{name}',"
            " rows) does for many rows at once. There is a row for each feature, and one for the"
            " label: what may be asked, and what is answered.",
            {
                "column_name": "the feature, or the label",
                "role": "feature or label",
                "kind": "numeric, categorical or array",
                "lower": "numbers below are taken for this one",
                "upper": "numbers above are taken for this one",
                "length": "how many numbers an array has",
                "labels": "the values that there are; any other one is taken for none of them",
            },
        ),
    }
