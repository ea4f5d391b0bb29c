"""The command line of ``scripts/bench``."""

import sys

from scripts.benchmarks.harness.running import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
