"""docs/upgrading.md has the accepted versions of packages, and each schema version."""

import re
import tomllib

from claimlib.schema import FIRST_SCHEMA_VERSION, SCHEMA_VERSION, TABLES, UPGRADABLE
from tests.edge.documents import ROOT, rows, section

DOCUMENT = "docs/upgrading.md"
# What a runtime lacks: the same ranges once more.
REPEATED = "databricks"


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_accepted_versions_of_packages_are_those_of_the_project():
    extras = project()["optional-dependencies"]
    wanted = {
        (extra, requirement)
        for extra, requirements in extras.items()
        if extra != REPEATED
        for requirement in requirements
    }
    table = [
        row for row in rows(section(DOCUMENT, "## Versions of other software")) if row[0][0] == "`"
    ]
    told = {
        (extra, package.strip("`") + accepted.strip("`"))
        for package, accepted, of_extras in table
        for extra in of_extras.split(", ")
    }
    assert told == wanted


def test_the_least_python_is_that_of_the_project():
    text = section(DOCUMENT, "## Versions of other software")
    (least,) = re.findall(r"^\| Python \| (\S+) or newer", text, re.MULTILINE)
    assert project()["requires-python"] == f">={least}"


def test_each_schema_version_and_each_column_that_one_added_is_named():
    table = {row[0]: row[1] for row in rows(section(DOCUMENT, "## The store"))}
    assert table.keys() >= UPGRADABLE | {SCHEMA_VERSION}
    for version, added in table.items():
        named = set(re.findall(r"`(\w+\.\w+)`", added))
        columns = {
            f"{name}.{column.name}"
            for name, of_table in TABLES.items()
            for column in of_table.columns
            if column.since == version != FIRST_SCHEMA_VERSION
        }
        assert named == columns
