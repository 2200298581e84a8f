"""How readers and writers learn that a server does not have what they ask for."""

from claimlib.errors import SourceError, SourceUnreachableError


class VanishedError(SourceError):
    """The stream or the group is not there.  It never leaves this package."""


class SlotMovedError(SourceUnreachableError):
    """The slot of the stream moves, or has moved, to another node of the cluster."""
