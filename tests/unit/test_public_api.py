"""What users import from claimlib: the same names for people, type checkers and Python."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import claimlib
from claimlib import errors
from tests.unit.public_api import FILE, MADE, members, public_api

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "claimlib"
SOURCE = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
NAMES = sorted(set(claimlib.__all__) - {"__version__"})
# What users write their programs after, and what they may import: these packages, and no module
# of them.
EXAMPLES = [ROOT / "README.md"] + [
    path
    for folder, pattern in (("docs", "**/*.md"), ("jobs", "*.py"), ("notebooks", "*.py"))
    for path in (ROOT / folder).glob(pattern)
]
OPEN = {"claimlib", "claimlib.cli", "claimlib.notebook", "claimlib.testing"}
# Types in signatures that users neither make nor name.
INTERNAL = {"RunRow", "SourceOpened"}


def imports_for_type_checkers():
    """The names that the package imports for type checkers only, with their modules."""
    (block,) = (
        node
        for node in SOURCE.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    assert all(isinstance(node, ast.ImportFrom) for node in block.body)
    return {alias.name: node.module for node in block.body for alias in node.names}


def test_the_names_are_the_same_for_type_checkers_and_python():
    assert imports_for_type_checkers() == claimlib._HOMES
    assert set(claimlib.__all__) == {"__version__", *claimlib._HOMES}


def test_the_module_of_a_name_is_the_one_that_defines_it():
    """The site reads the docstrings there, without importing anything."""
    others = {
        name: value.__module__
        for name in NAMES
        if inspect.isfunction(value := getattr(claimlib, name)) or inspect.isclass(value)
    }
    assert others == {name: claimlib._HOMES[name] for name in others}


def test_no_public_name_is_that_of_a_module():
    """The import of such a module would replace the name."""
    modules = {path.stem for path in PACKAGE.iterdir()}
    assert not modules & set(claimlib.__all__)


def test_names_and_signatures_are_those_that_are_written_down():
    assert FILE.read_text(encoding="utf-8") == public_api(), "run: python -m tests.unit.public_api"


def test_every_error_of_the_tree_is_public():
    tree = {name for name, item in vars(errors).items() if inspect.isclass(item) and name != "Any"}
    assert tree <= set(claimlib.__all__)


def functions():
    """The public functions and methods, and the constructors of values, by name."""
    for name in NAMES:
        value = getattr(claimlib, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value) and not issubclass(value, claimlib.ClaimlibError):
            if name not in MADE and inspect.isfunction(value.__init__):
                yield name, value.__init__
            for key, member in members(name).items():
                kinds = ("__func__", "fget", "func")  # of a class, a property and a cached one
                inner = [getattr(member, kind) for kind in kinds if hasattr(member, kind)]
                yield f"{name}.{key}", *(inner or [member])


@pytest.mark.parametrize(
    "function",
    [pytest.param(function, id=name) for name, function in functions() if callable(function)],
)
def test_the_types_in_a_public_signature_are_public(function):
    words = re.findall(r"\b[A-Z]\w+", " ".join(map(str, function.__annotations__.values())))
    values = function.__globals__
    own = {
        word
        for word in words
        if getattr(values.get(word), "__module__", "").partition(".")[0] == "claimlib"
    }
    assert own - INTERNAL <= set(claimlib.__all__)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.isupper()])
def test_every_public_name_is_described(name):
    value = getattr(claimlib, name)
    assert name in {"Policy", "Progress"} or inspect.getdoc(value)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_import_from_the_packages_that_are_for_users(path):
    text = path.read_text(encoding="utf-8")
    imported = re.findall(r"^ *(?:from|import) (claimlib[\w.]*)", text, re.MULTILINE)
    assert set(imported) <= OPEN
    named = set(re.findall(r"`(claimlib\.[a-z_]+(?:\.\w+)+)", text))
    assert path.name == "development.md" or not named


def test_a_name_that_the_package_of_test_helpers_lacks_is_an_attribute_error():
    from claimlib import testing

    assert [getattr(testing, name).__name__ for name in testing.__all__] == testing.__all__
    with pytest.raises(AttributeError, match="no attribute 'xfoo'"):
        _ = testing.xfoo
