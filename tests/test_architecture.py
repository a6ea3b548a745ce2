"""The architecture is a test: imports point one way, and the core imports nothing heavy."""

import ast
import dataclasses
import sys
from pathlib import Path
from typing import get_type_hints

from deadlines import run

ROOT = Path(__file__).parents[1]


def test_imports_point_up_the_story(monkeypatch):
    from importlinter import cli
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    # It would switch off every logger of this process, and later tests look at what is logged.
    monkeypatch.setattr(cli.logging_config, "dictConfig", lambda _: None)
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None) == EXIT_STATUS_SUCCESS


def test_every_module_has_a_place_in_the_layers():
    layers = (ROOT / "pyproject.toml").read_text().split("layers = [")[1].split("]")[0]
    for path in (ROOT / "src" / "ghofl").iterdir():
        if path.name not in ("__init__.py", "py.typed", "__pycache__"):
            assert f"ghofl.{path.stem}" in layers, f"{path.name} is in no layer of pyproject.toml"


def test_importing_ghofl_needs_no_edge_library():
    code = (
        "import sys, ghofl; heavy = {'torch', 'timm', 'transformers', 'flwr', 'sklearn', 'typer', 'rich'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert run(sys.executable, "-c", code).stdout.strip() == "[]"


BUILT_IN = {
    "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError", "LookupError",
    "NotImplementedError", "OverflowError", "RuntimeError", "TypeError", "ValueError",
}  # fmt: skip
CAUGHT_NEARBY = {
    "__init__.py": {"AttributeError"},  # how a module says that it has no such name
    "container.py": {"ValueError"},  # hooks of json.loads, whose errors `_json` turns into a MessageError
}


def raised(path: Path) -> set[str]:
    """The names of what a file raises by `raise Name(…)` or `raise Name`."""
    found = {node.exc for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Raise)}
    called = {exc.func if isinstance(exc, ast.Call) else exc for exc in found}
    return {exc.id for exc in called if isinstance(exc, ast.Name)}


def test_what_is_raised_on_purpose_is_in_the_tree_of_errors():
    """The command line tells bad input from a defect by it: one is a sentence, the other a traceback."""
    for path in (ROOT / "src").rglob("*.py"):
        bare = raised(path) & BUILT_IN - CAUGHT_NEARBY.get(path.name, set())
        assert not bare, f"{path} raises {sorted(bare)}; raise an error of ghofl.errors, which is one of them too"


def test_what_python_calls_is_told_in_words_of_python():
    """An error or a note of these names a parameter as `unit_length`; the command line turns it into --unit-length."""
    source = ROOT / "src" / "ghofl"
    reached = [source / "short.py", source / "sklearn.py", source / "classifier.py", source / "recipe" / "labels.py"]
    for room in ("simulation", "planning", "features", "moments", "gaussians", "heads"):
        reached += (source / room).rglob("*.py")
    reached.remove(source / "simulation" / "site.py")  # what it tells, flwr shows
    for path in reached:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        told = [part for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node)]
        for part in told:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                assert " --" not in f" {part.value}".replace("(", " "), f"{path}: {part.value}"


def test_no_value_with_arrays_inside_is_compared_as_a_tuple():
    """`==` between tuples of arrays raises; such a dataclass says itself what equal means, or leaves it to identity."""
    import ghofl.simulation.simulate  # noqa: F401  # the story, and all it needs

    modules = [module for name, module in sys.modules.items() if name == "ghofl" or name.startswith("ghofl.")]
    values = {
        c for module in modules for c in vars(module).values() if dataclasses.is_dataclass(c) and isinstance(c, type)
    }
    assert len(values) > 40
    for kind in values:
        has_arrays = any("ndarray" in str(getattr(hint, "array_type", hint)) for hint in get_type_hints(kind).values())
        is_generated = kind.__dataclass_params__.eq and "__eq__" in vars(kind)
        assert not (has_arrays and is_generated), f"{kind} compares its arrays as a tuple: write eq=False"


def test_nothing_is_ever_unpickled():
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "import pickle" not in text, path
        assert "allow_pickle=True" not in text, path


def functions(path: Path) -> list[ast.FunctionDef]:
    return [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.FunctionDef)]


def test_functions_are_short():
    """Of a command, its signature counts too: options that belong together are a record."""
    for path in (ROOT / "src").rglob("*.py"):
        for function in functions(path):
            lines = function.end_lineno - function.lineno + 1
            assert lines <= 60, f"{function.name} of {path} has {lines} lines; name its steps"
