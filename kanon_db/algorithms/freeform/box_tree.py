"""The tree over the cells: each node is a box around the available ones below it.

The tree is binary and has no pointers: the children of node x are 2x and 2x + 1, and a leaf stands
for 8 positions. A search in it is exact, because it leaves out only nodes whose box proves that
no cell below them is better.
"""

from __future__ import annotations

import numba

from kanon_db.algorithms.freeform.arrangement import LEAF
from kanon_db.algorithms.freeform.boxes import FAR, Boxes, enclose
from kanon_db.algorithms.freeform.graph import Graph
from kanon_db.algorithms.ground.arrays import Integer


@numba.njit(cache=True, nogil=True)
def open_round(graph: Graph) -> None:
    """Make every cell available, at no price.

    Parameters
    ----------
    graph : Graph
    """
    graph.cells.price[:] = 0
    refresh(graph)


@numba.njit(cache=True, nogil=True)
def refresh(graph: Graph) -> None:
    """Compute all nodes of the tree anew.

    Parameters
    ----------
    graph : Graph
    """
    cells, nodes = graph.cells, graph.nodes
    for node in range(nodes.price.size - 1, 0, -1):
        _refresh_node(cells, nodes, node)


@numba.njit(cache=True, nogil=True)
def take(graph: Graph, cell: Integer) -> None:
    """Make a cell unavailable.

    Parameters
    ----------
    graph : Graph
    cell : int
        Position.
    """
    cells, nodes = graph.cells, graph.nodes
    cells.price[cell] = FAR
    node = nodes.price.size // 2 + cell // LEAF
    while node and _refresh_node(cells, nodes, node):  # what is above follows from its children
        node //= 2


@numba.njit(cache=True, nogil=True)
def raise_price(graph: Graph, cell: Integer, price: Integer) -> None:
    """Give a cell a price that is not below its last one, while all cells are available.

    Parameters
    ----------
    graph : Graph
    cell : int
        Position.
    price : int
    """
    prices, nodes = graph.cells.price, graph.nodes
    prices[cell] = price
    start = cell // LEAF * LEAF
    least = prices[start : start + LEAF].min()
    node = nodes.price.size // 2 + cell // LEAF
    while node and nodes.price[node] != least:
        nodes.price[node] = least
        if node > 1:
            least = min(least, nodes.price[node ^ 1])
        node //= 2


@numba.njit(cache=True, nogil=True)
def _refresh_node(cells: Boxes, nodes: Boxes, node: int) -> bool:
    """Compute a node anew; tell whether it changed."""
    n_leaves = nodes.price.size // 2
    if node < n_leaves:
        return enclose(nodes, node, nodes, 2 * node, 2 * node + 2)
    start = (node - n_leaves) * LEAF
    return enclose(nodes, node, cells, start, min(start + LEAF, cells.price.size))
