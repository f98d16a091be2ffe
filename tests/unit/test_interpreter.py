"""The environment that the server imports from."""

from __future__ import annotations

from importlib.util import cache_from_source
from pathlib import Path

from kanon_db.installation.interpreter import _copy_environment, compile_packages


def test_what_sessions_import_is_compiled_also_in_a_copy(tmp_path: Path) -> None:
    environment, home = tmp_path / "environment", tmp_path / "cluster"
    package = environment / "numpy" / "inner"
    package.mkdir(parents=True)
    (package / "module.py").write_text("")
    (package / "broken.py").write_text("(")
    compile_packages([str(environment), str(tmp_path / "missing")])
    assert Path(cache_from_source(str(package / "module.py"))).exists()

    home.mkdir()
    (home / "kanon.conf").touch()
    copied = _copy_environment(home / "data", [str(environment)])
    assert copied is not None
    module = Path(copied[0], "numpy", "inner", "module.py")
    assert Path(cache_from_source(str(module))).exists()
