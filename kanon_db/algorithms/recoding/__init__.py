"""What classes of records and graphs of matches share: microdata, losses, growth, annealing."""

from kanon_db.algorithms.recoding.changing_classes import Constraint
from kanon_db.algorithms.recoding.generalized_cells import (
    NumberedCells,
    Ranges,
    RowClasses,
    Sets,
    cells_of_classes,
    distinct_cells,
)
from kanon_db.algorithms.recoding.loss import ExactLoss, Ncp
from kanon_db.algorithms.recoding.microdata import (
    Attribute,
    Microdata,
    Sorting,
    attribute_order,
    check_k,
    sort_order,
)

__all__ = [
    "Attribute", "Constraint", "ExactLoss", "Microdata", "Ncp", "NumberedCells", "Ranges",
    "RowClasses", "Sets", "Sorting", "attribute_order", "cells_of_classes", "check_k",
    "distinct_cells", "sort_order",
]  # fmt: skip
