"""Execute statements: the only package that knows whether Spark or this process does so."""
