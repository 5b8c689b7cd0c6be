"""The command `psring` of the wheel: the program that it carries."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "cli", "psring")
    try:
        os.execv(program, [program] + sys.argv[1:])
    except OSError as error:
        sys.exit(f"psring: cannot run {program}: {error.strerror}; install the psring wheel again")
