"""Draws the plots of a report, as SVG that takes its colours from the page around it."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from kanon_db.publications.results import Attack
from kanon_db.reporting.facts import ErrorsAt

_INK, _BAR, _OTHER = "#010101", "#020202", "#030303"
"""Stand for colours of the page: it knows whether it is dark, or printed."""

_COLOURS: Final = {_INK: "var(--ink)", _BAR: "var(--bar)", _OTHER: "var(--other)"}
_STYLE: Final[Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "kanon_db", "font.family": "sans-serif",
    "font.size": 10, "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _INK,
    "xtick.color": _INK, "ytick.color": _INK, "axes.spines.top": False,
    "axes.spines.right": False, "legend.frameon": False,
    "text.parse_math": False,  # names of columns are no formulas
}  # fmt: skip
_MOST_BARS: Final = 60
"""Bars of a plot of sizes; further sizes are grouped."""


def sizes_plot(sizes: Sequence[tuple[int, int]], what: str) -> str:
    """Draw how many buckets or classes have each size; many sizes are put into equal steps.

    `what` is counted in each of them.
    """
    least, most = sizes[0][0], sizes[-1][0]
    step = -(-(most - least + 1) // _MOST_BARS)
    bars: dict[int, int] = {}
    for size, number in sizes:
        start = least + (size - least) // step * step
        bars[start] = bars.get(start, 0) + number
    with _figure("sizes", 3.0) as (figure, drawn):
        axes = figure.subplots()
        starts = list(bars)
        axes.bar(starts, list(bars.values()), width=0.8 * step, align="edge" if step > 1 else
                 "center", color=_BAR)  # fmt: skip
        axes.set_xlabel(what)
        axes.set_ylabel("how many")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return drawn[0]


def losses_plot(losses: Mapping[str, float]) -> str:
    """Draw what each quasi-identifier loses."""
    names, n_lines = _wrapped(losses)
    with _figure("losses", 0.7 + 0.16 * (len(names) + n_lines)) as (figure, drawn):
        axes = figure.subplots()
        axes.barh(range(len(names)), list(losses.values()), tick_label=names, color=_BAR)
        axes.invert_yaxis()
        axes.set_xlim(0, max(1.05 * max(losses.values()), 0.01))
        axes.xaxis.set_major_formatter(FuncFormatter(_percent))
        axes.set_xlabel("lost, of all that the column tells")
    return drawn[0]


def errors_plot(errors: Sequence[ErrorsAt]) -> str:
    """Draw the relative errors of counts against the share of records that they match."""
    with _figure("errors", 3.0) as (figure, drawn):
        axes = figure.subplots()
        places = [one.selectivity for one in errors]
        axes.fill_between(
            places, [one.tenth for one in errors], [one.ninetieth for one in errors],
            color=_OTHER, alpha=0.35, linewidth=0, label="eight of ten counts",
        )  # fmt: skip
        axes.plot(places, [one.median for one in errors], color=_BAR, marker="o", label="median")
        axes.set_xscale("log")
        axes.set_xticks(places)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(FuncFormatter(_percent))
        axes.yaxis.set_major_formatter(FuncFormatter(_percent))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("records that a count matches")
        axes.set_ylabel("relative error")
        axes.legend()
    return drawn[0]


def attacks_plot(attacks: Sequence[Attack]) -> str:
    """Draw what each attack achieves, beside what the guarantee allows and what anybody guesses."""
    found = [line for line in attacks if line.rate is not None]
    names, n_lines = _wrapped([line.attack for line in found])
    with _figure("attacks", 0.9 + 0.17 * (len(names) + n_lines)) as (figure, drawn):
        axes = figure.subplots()
        rates = [line.rate or 0 for line in found]
        axes.barh(range(len(names)), rates, tick_label=names, color=_BAR)
        for place, line in enumerate(found):
            for value, colour, style in (
                (line.base_rate, _OTHER, ":"), (line.bound, _INK, "-"),
            ):  # fmt: skip
                if value is not None:
                    axes.plot([value] * 2, [place - 0.42, place + 0.42], color=colour,
                              linestyle=style, linewidth=2)  # fmt: skip
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(FuncFormatter(_percent))
        axes.set_xlabel("right, of those for whom it guesses")
    return drawn[0]


_WIDEST: Final = 20
"""Characters of a label's line: on a telephone, bars must have room beside it."""


def _wrapped(names: Iterable[str]) -> tuple[list[str], int]:
    """Break labels into lines, and count these."""
    lines = [textwrap.wrap(name, _WIDEST) or [""] for name in names]
    return ["\n".join(one) for one in lines], sum(map(len, lines))


def _percent(share: float, _place: Any = None) -> str:
    return f"{100 * share:.3g} %"


@contextmanager
def _figure(name: str, height: float) -> Iterator[tuple[Figure, list[str]]]:
    """Give a figure to draw on; when it is done, its SVG is in the list."""
    drawn: list[str] = []
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(4.6, height), layout="constrained")
        yield figure, drawn
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'width="[^"]*pt" height="[^"]*pt"', "", svg, count=1)
    # Names must be those of one element on a page with several plots.
    svg = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", svg)
    for stand_in, colour in _COLOURS.items():
        svg = svg.replace(stand_in, colour)
    drawn.append(svg)
