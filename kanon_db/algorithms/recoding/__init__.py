"""What classes of records and graphs of matches share: microdata, losses, growth, annealing."""

from kanon_db.algorithms.recoding.cells import (
    NumberedCells,
    Ranges,
    Sets,
    cells_of_classes,
    distinct_cells,
)
from kanon_db.algorithms.recoding.constraints import Constraint
from kanon_db.algorithms.recoding.exact_loss import ExactLoss
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata, check_k
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.algorithms.recoding.order import attribute_order, sort_order

__all__ = [
    "Attribute", "Constraint", "ExactLoss", "Microdata", "Ncp", "NumberedCells", "Ranges", "Sets",
    "attribute_order", "cells_of_classes", "check_k", "distinct_cells", "sort_order",
]  # fmt: skip
