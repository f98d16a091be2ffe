"""Reports of Adult for each kind, kept as examples in docs/examples, and what making them takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

import pandas as pd
import psycopg

import kanon_db
from benchmarks.harness import private_server, table

DATA: Final = (
    Path(os.environ.get("KANON_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data"
)
EXAMPLES: Final = Path(__file__).parents[1] / "docs" / "examples"
KNOWN: Final = ("age", "workclass", "education", "marital", "race", "sex", "country")
REASON: Final = json.dumps({"combined_releases": "an example: the data has been public since 1996"})
PUBLISHED: Final = {
    "buckets": ("publish_buckets", {"privacy": '{"theta": 8, "base": 0.02, "cap": 0.5}'}),
    "generalized": ("publish_generalized", {"k": 5, "method": "mondrian", "refine": False}),
    "freeform": ("publish_freeform", {"k": 5, "options": '{"refine": false}'}),
    "suppressed": ("publish_suppressed", {"k": 5}),
}
SCREENSHOTS: Final = {"wide": (1280, 1500, ()), "dark": (1280, 1500, ("--force-dark-mode",)),
                      "narrow": (400, 1700, ())}  # fmt: skip


def main() -> str:
    """Return the results as Markdown."""
    rows = []
    EXAMPLES.mkdir(exist_ok=True)
    with private_server() as dsn, kanon_db.connect(dsn) as kanon:
        _load(dsn, kanon)
        for kind, (function, given) in PUBLISHED.items():
            name = f"adult_{kind}"
            request = {"source": "adult", "publication": name, "accept": REASON, **given}
            kanon.perform(function, request)
            started = time.perf_counter()
            text = kanon.report(name)
            elapsed = time.perf_counter() - started
            (EXAMPLES / f"{name}.html").write_text(text)
            rows.append([kind, f"{elapsed:.1f} s", f"{len(text.encode()) / 1000:.0f} kB"])
    _photograph(EXAMPLES / "adult_buckets.html")
    return (
        "`kanon report` for four publications of Adult (30,162 people, seven quasi-identifiers):"
        " attacks, verification, 600 counts and plots. The reports are"
        " [examples](../howto/report.md).\n\n" + table(["kind", "time", "size"], rows)
    )


def _load(dsn: str, kanon: kanon_db.Kanon) -> None:
    people = pd.read_csv(DATA / "adult_30162.csv.gz").rename(
        columns={"marital-status": "marital", "native-country": "country"}
    )
    people = people[[*KNOWN, "occupation"]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "adult.csv")
        people.to_csv(path, index=False)
        kanon.load(path, "public.adult")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ANALYZE public.adult")
    kanon.register_source("adult", quasi_identifiers=list(KNOWN), sensitive="occupation")


def _photograph(page: Path) -> None:
    """Take screenshots, where there is a browser."""
    browser = shutil.which("chromium")
    for name, (width, height, more) in SCREENSHOTS.items() if browser else ():
        target = page.parents[1] / "figures" / f"report-{name}.png"
        with tempfile.TemporaryDirectory() as folder:
            # A window cannot be narrower than 500 pixels; a frame can.
            frame = Path(folder, "frame.html")
            frame.write_text(
                f'<body style="margin:0"><iframe src="{page.as_uri()}" style="border:0"'
                f' width="{width}" height="{height}"></iframe>'
            )
            subprocess.run(
                [str(browser), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                 *more, f"--window-size={max(width, 500)},{height}", f"--screenshot={target}",
                 frame.as_uri()],
                check=True, capture_output=True,
            )  # fmt: skip
        _crop(target, width)


def _crop(picture: Path, width: int) -> None:
    from PIL import Image

    with Image.open(picture) as whole:
        cropped = whole.crop((0, 0, width, whole.height))
    cropped.quantize(64).save(picture, optimize=True)


if __name__ == "__main__":
    print(main())
