"""Define the errors of a server that does not have what readers and writers request."""

from claimlib.errors import SourceError, SourceUnreachableError


class VanishedError(SourceError):
    """The stream or the group is not there.  It never leaves this package."""


class SlotMovedError(SourceUnreachableError):
    """Report that the slot of the stream moves, or has moved, to another node of the cluster."""
