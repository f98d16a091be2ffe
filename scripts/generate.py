"""Write the committed files that are derived from others: ``make generate``.

From the declared operations: the SQL functions, the methods of the Python interface, and the
reference's tables. From the tests: the page of security tests.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # this checkout's package, no matter which one is installed

from kanon_db.declaration import Operation, Parameter, parameters_of  # noqa: E402
from kanon_db.installation import sql_objects as sql  # noqa: E402
from kanon_db.operations import operations  # noqa: E402
from scripts import security_tests  # noqa: E402

_METHODS: Final = "kanon_db/interfaces/python_methods.pyi"
_REFERENCE: Final = "docs/reference/reference.md"
_SECURITY_TESTS: Final = "docs/reference/security-tests.md"


def generated(root: Path) -> dict[Path, str]:
    """Return all generated files of a checkout, with their text."""
    declared = list(operations().values())
    files = {
        root / "sql" / f"30_{operation.name}.sql": sql.function_sql(operation)
        for operation in declared
    }
    files[root / _METHODS] = formatted(python_methods(declared))
    reference = root / _REFERENCE
    files[reference] = with_tables(reference.read_text(encoding="utf-8"), declared)
    files[root / _SECURITY_TESTS] = security_tests.page(root)
    return files


# -- Python ------------------------------------------------------------------------------------


def python_methods(declared: Iterable[Operation]) -> str:
    """Write the stub of the Python interface's methods."""
    declared = list(declared)
    rows = sorted({operation.row_class for operation in declared if operation.row_class})
    imports = [f"from {module} import {name}" for module, name in (row.split(":") for row in rows)]
    return "\n".join(
        [
            '"""The operations as methods.',
            "",
            "Written by `make generate` from the declarations in kanon_db/operations.py.",
            '"""',
            "",
            "from __future__ import annotations",
            "",
            "from collections.abc import Mapping, Sequence",
            "from decimal import Decimal",
            "from typing import Any",
            "",
            "import pandas as pd",
            "",
            *imports,
            "",
            "",
            "class Methods:",
            "    def perform(self, name: str, given: Mapping[str, Any]) -> Any: ...",
            *(line for operation in declared for line in _method(operation)),
            "",
        ]
    )


def formatted(text: str) -> str:
    """Return Python code, formatted like the rest of the project."""
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", _METHODS, "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def _method(operation: Operation) -> list[str]:
    declared = operation.parameters
    positional = [item for item in declared if item.is_positional]
    named = [item for item in declared if not item.is_positional]
    signature = ["self", *map(_annotated, positional), *(["*"] if named else [])]
    signature += map(_annotated, sorted(named, key=lambda item: not item.is_required))
    return [f"    def {operation.name}({', '.join(signature)}) -> {_returned(operation)}: ..."]


def _annotated(parameter: Parameter) -> str:
    optional = " | None" if parameter.default is None else ""
    default = "" if parameter.is_required else " = ..."
    return f"{parameter.name}: {parameter.type.python}{optional}{default}"


def _returned(operation: Operation) -> str:
    if operation.is_value:
        return "int" if operation.result[0].sql == "bigint" else "str"
    if operation.is_many:
        return "pd.DataFrame"
    return operation.row_class.split(":")[1] if operation.result else "None"


# -- the reference -----------------------------------------------------------------------------


def with_tables(text: str, declared: Iterable[Operation]) -> str:
    """Put the tables into the page, each of them between its two comments."""
    declared = list(declared)
    shared = _of_every_publication(declared)
    tabled = {item.name for item in declared if f"<!-- generated: {item.name} -->" in text}
    tables = {"functions": _functions(declared, tabled), "commands": _commands(declared)}
    tables |= {operation.name: _parameters(operation, shared) for operation in declared}
    tables["every publication"] = _table(shared, shared)
    for name, table in tables.items():
        mark, end = f"<!-- generated: {name} -->", "<!-- end -->"
        pattern = re.compile(f"{re.escape(mark)}.*?{re.escape(end)}", re.DOTALL)
        text = pattern.sub(lambda _: f"{mark}\n{table}\n{end}", text)  # noqa: B023
    return text


def _functions(declared: list[Operation], tabled: Set[str]) -> str:
    """List all functions; the parameters of those that are tabled stand in tables of their own."""
    audiences = ("publishers, analysts and users", "publishers")
    return "\n\n".join(
        f"For {audience}:\n\n" + _functions_for(audience, declared, tabled)
        for audience in audiences
    )


def _functions_for(audience: str, declared: list[Operation], tabled: Set[str]) -> str:
    lines = ["| function | |", "|---|---|"]
    for operation in declared:
        *first, last = (role.removeprefix("kanon_") + "s" for role in operation.audience)
        roles = " and ".join([", ".join(first), last] if first else [last])
        if roles != audience:
            continue
        names = ", ".join(item.name for item in operation.parameters)
        names = "…" if operation.name in tabled else names
        columns = ", ".join(f"`{column.name}`" for column in operation.result if column.name)
        returns = f"; returns {columns}" if columns else ""
        lines.append(f"| `{operation.name}({names})` | {_cell(operation.help)}{returns} |")
    return "\n".join(lines)


def _of_every_publication(declared: list[Operation]) -> list[Parameter]:
    """Return the parameters that all kinds have, with one meaning, which is written once."""
    first, *others = (o.parameters for o in declared if o.name.startswith("publish_"))
    return [item for item in first if all(item in other for other in others)]


def _parameters(operation: Operation, shared: list[Parameter]) -> str:
    is_publishing = operation.name.startswith("publish_")
    shown = [item for item in operation.parameters if not (is_publishing and item in shared)]
    return _table(shown, operation.parameters)


def _table(shown: Iterable[Parameter], declared: Sequence[Parameter]) -> str:
    lines = ["| parameter | type, default | |", "|---|---|---|"]
    shown = list(shown)
    for item in shown:
        default = sql.sql_default(declared, item)
        value = "" if default is None or item.is_required else f", `{default}`"
        lines.append(f"| `{item.name}` | `{item.type.sql}`{value} | {_meaning(item)} |")
    for item in shown:
        for option in parameters_of(item.type.options) if item.type.options else []:
            value = "" if option.default is None else f"`{json.dumps(option.default)}`"
            lines.append(f"| `{item.name}.{option.name}` | {value} | {_meaning(option)} |")
    return "\n".join(lines)


def _meaning(parameter: Parameter) -> str:
    choices = "; ".join(f"`{name}`: {text}" for name, text in parameter.type.choices.items())
    methods = ", ".join(f"`{method}`" for method in parameter.methods)
    parts = [parameter.help, choices and f"{choices}.", methods and f"Only for {methods}."]
    return _cell(" ".join(part for part in parts if part))


def _commands(declared: list[Operation]) -> str:
    lines = []
    for operation in declared:
        if operation.command:
            given = [item for item in operation.parameters if item.is_required]
            words = [
                (item.metavar or item.name).upper()
                if item.is_positional
                else f"--{item.name.replace('_', '-')} …"
                for item in sorted(given, key=lambda item: not item.is_positional)
            ]
            command = " ".join(["kanon", *operation.command, *words])
            is_called_so = operation.name == "_".join(operation.command).replace("-", "_")
            lines.append(f"* `{command}`" + ("" if is_called_so else f" (`{operation.name}`)"))
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


def main() -> None:
    """Write the generated files of this checkout."""
    for path, text in generated(ROOT).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
