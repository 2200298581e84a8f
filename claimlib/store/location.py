"""Define the location of a store."""

from __future__ import annotations

from dataclasses import dataclass

from claimlib.places import (
    check_no_secret,
    check_place,
    check_storage,
    is_namespace,
    local_folder,
)
from claimlib.schema import quote_identifier


@dataclass(frozen=True, slots=True)
class Location:
    """Hold the location of a store: a folder or a schema of a catalog."""

    where: str
    is_namespace: bool

    @classmethod
    def parse(cls, where: str) -> Location:
        """Return the location that a text names.

        `catalog.schema` is a namespace, and any other text is a folder or a URL.  A relative path
        is made absolute.

        Raises:
            RequestError: the text is not a location of a store, or contains a secret.
        """
        check_place(where, "the store's location")
        check_no_secret(where, "the store's location")
        check_storage(where, "the store's location")
        if is_namespace(where):
            return cls(where, is_namespace=True)
        folder = local_folder(where)
        return cls(where.rstrip("/") if folder is None else str(folder), is_namespace=False)

    def identifier(self, table: str) -> str:
        """Return the table's quoted name in SQL."""
        if self.is_namespace:
            return ".".join(quote_identifier(part) for part in (*self.where.split("."), table))
        return f"delta.{quote_identifier(f'{self.where}/{table}')}"
