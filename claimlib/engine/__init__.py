"""Execute statements in Spark or in this process.  Only this package knows in which of them."""
