"""`python -m tocha`: the command line."""

import sys

from tocha.cli import main

if __name__ == "__main__":
    sys.exit(main())
