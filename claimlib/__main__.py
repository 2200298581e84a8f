"""`python -m claimlib`: the command line."""

from claimlib.cli import main

if __name__ == "__main__":
    main()
