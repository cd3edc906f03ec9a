"""Judges models on BFCL-v4, function calling; the same as the command `dara-trl eval bfcl`.

python examples/eval_bfcl.py --model base=embedded:smollm2 --category simple_python --limit 8 --max-new-tokens 128
python examples/eval_bfcl.py --model Qwen/Qwen2.5-1.5B-Instruct --model trained=runs/toolrl_qwen2.5_1.5b
"""

import sys

from dara_trl.cli import main


if __name__ == "__main__":
    sys.exit(main(["eval", "bfcl", *sys.argv[1:]]))
