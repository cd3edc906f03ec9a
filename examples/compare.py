"""Trains a grid of methods, settings and seeds and compares them; the same as the command `dara-trl compare`.

python examples/compare.py examples/configs/compare/toolrl_cpu.yaml --jobs 2
dara-trl report runs/compare
"""

import sys

from dara_trl.cli import main


if __name__ == "__main__":
    sys.exit(main(["compare", *sys.argv[1:]]))
