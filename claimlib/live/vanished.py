"""Define the errors of a server that does not have what readers and writers request."""

from claimlib.errors import SourceError, SourceUnreachableError


class VanishedError(SourceError):
    """Report that the stream or the group does not exist.  This error never leaves this package."""


class SlotMovedError(SourceUnreachableError):
    """Report that the slot of the stream moves, or has moved, to another node of the cluster."""
