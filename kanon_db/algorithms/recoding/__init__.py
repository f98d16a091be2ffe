"""What classes of records and graphs of matches share: microdata, losses, growth, annealing."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from kanon_db.algorithms.recoding.generalized_cells import (
    NumberedCells,
    Ranges,
    RowClasses,
    Sets,
    cells_of_classes,
    distinct_cells,
)
from kanon_db.algorithms.recoding.microdata import (
    Attribute,
    Microdata,
    Sorting,
    attribute_order,
    check_k,
    sort_order,
)

if TYPE_CHECKING:
    from kanon_db.algorithms.recoding.changing_classes import Constraint
    from kanon_db.algorithms.recoding.loss import ExactLoss, Ncp

__all__ = [
    "Attribute", "Constraint", "ExactLoss", "Microdata", "Ncp", "NumberedCells", "Ranges",
    "RowClasses", "Sets", "Sorting", "attribute_order", "cells_of_classes", "check_k",
    "distinct_cells", "sort_order",
]  # fmt: skip

_OF_SEARCHES: Final = {"Constraint": "changing_classes", "ExactLoss": "loss", "Ncp": "loss"}


def __getattr__(name: str) -> object:
    """Import what only searches need where it is used: a question about rows needs cells alone."""
    if name in _OF_SEARCHES:
        return getattr(import_module(f"{__name__}.{_OF_SEARCHES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
