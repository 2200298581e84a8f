"""Show stores in a browser: pages that only read."""
