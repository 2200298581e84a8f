"""How the reader learns that what it reads is not there any more."""

from claimlib.errors import SourceError


class VanishedError(SourceError):
    """The stream or the group is not there.  It never leaves this package."""
