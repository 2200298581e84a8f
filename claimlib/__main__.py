"""Run the command line: `python -m claimlib`."""

from claimlib.cli import main

if __name__ == "__main__":
    main()
