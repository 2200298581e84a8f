"""Redis XAUTOCLAIM semantics over Delta tables.

Importing this package needs the standard library only.  The modules `errors`, `ids`, `names`,
`times`, `model`, `rules`, `scan` and `words` say what the server does and need nothing else either;
all other modules belong to one of the extras.
"""

__version__ = "0.1.0"
