"""What a refresh is about, and what its ways give: a batch, or everybody anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kanon_db.catalog.entries import Publication, Source
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.entity_hashes import Entities
from kanon_db.publications.kind import Kind, Written
from kanon_db.publications.request import PublishRequest
from kanon_db.publications.staging import Staging
from kanon_db.session import Session
from kanon_db.transfer.columns import ColumnType


@dataclass(frozen=True, eq=False)
class Task:
    """A publication to refresh.

    Attributes
    ----------
    session : Session
    source : Source
    types : dict of str to ColumnType
        All columns of the source, in their order.
    old : Publication
    kind : Kind
    request : PublishRequest
        What was asked for, under the same guarantee.
    upto : str or None
        The greatest arrival that is published; None if no arrival is known.
    knows_entities : bool
        Whether the ledger has the hashes of those that are published.
    """

    session: Session
    source: Source
    types: Mapping[str, ColumnType]
    old: Publication
    kind: Kind
    request: PublishRequest
    upto: str | None
    knows_entities: bool

    def not_known(self) -> InvalidParameterError:
        """Make the refusal where nothing says who is new."""
        source = self.source
        if source.arrival is None and source.entity is None:
            why = "no column says when a record came, or whom it is about"
        elif source.entity is None:
            why = (
                f'publication "{self.old.name}" was made before {source.arrival} was known to say'
                " so, or it is NULL in every record"
            )
        else:
            why = (
                f'publication "{self.old.name}" was made before entities were kept, or equal'
                f" entities of the type of {source.entity} can be written in different ways"
            )
        return InvalidParameterError(
            "it is not known who came since",
            detail=f"{source.relation}: {why}",
            hint="register the source with arrival => a time or a running number, or with"
            " entity => a column of whole numbers, numeric, uuid or text, then publish",
        )


@dataclass(frozen=True, eq=False)
class Waits:
    """Nothing changes.

    Attributes
    ----------
    waiting : int
        Records that came, and are not published.
    missing : str or None
        Why.
    """

    waiting: int
    missing: str | None


@dataclass(frozen=True, eq=False)
class Made(Waits):
    """A publication, staged, that is to take the place of the old one.

    Attributes
    ----------
    staging : Staging
    written : Written
        Of everybody.
    published : sequence of str
        The columns of the source that it shows.
    types : dict
        Their types, for the catalog.
    records : int
    added : int
        Records that are new in it.
    metrics : dict of str to float
        Those that were measured from the source.
    upto : str or None
    entities : Entities or None
        The hashes to keep.
    withdrawn : int or None
        Records of before that are not in it any more; None if nobody can leave.
    left_out : int
        Those of them whose people are still in the source.
    parameters : dict
        What the catalog keeps in addition.
    """

    staging: Staging
    written: Written
    published: Sequence[str]
    types: Mapping[str, Any]
    records: int
    added: int
    metrics: Mapping[str, float]
    upto: str | None
    entities: Entities | None
    withdrawn: int | None = None
    left_out: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
