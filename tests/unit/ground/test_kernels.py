"""What was compiled is kept, and compiled again where it no longer fits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

KERNEL = """
from typing import NamedTuple
from kanon_db.algorithms.ground.kernels import kernel
class Pair(NamedTuple):
    a: int
    b: int
@kernel
def added(pair):
    return pair.a + pair.b
print(added(Pair(1, 2)), len(added._cache._cache_file._load_index()))
"""


def test_what_an_older_state_has_compiled_is_compiled_again(tmp_path: Path) -> None:
    """Also where its arguments are of a class that is gone."""
    module = tmp_path / "kernels.py"
    for text in (KERNEL, KERNEL.replace("Pair", "Couple")):
        module.write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", "import kernels"], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.stdout, done.stderr) == ("3 1\n", "")
