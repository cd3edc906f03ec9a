"""Judges models on mathematics problems; the same as the command `dara-trl eval math`.

python examples/eval_math.py --model base=embedded:arithmetic --benchmark sums=embedded --length-limit 32
python examples/eval_math.py --model Qwen/Qwen3-4B-Instruct-2507 --model trained=runs/math_qwen3_4b \
    --benchmark math500=HuggingFaceH4/MATH-500 --benchmark aime24=aime.json
"""

import sys

from dara_trl.cli import main


if __name__ == "__main__":
    sys.exit(main(["eval", "math", *sys.argv[1:]]))
