"""Packs the finished runs of a comparison into one small archive: run.json, and the figures that the report reads.

python examples/study/pack.py runs/study docs/study/runs.tar.gz
mkdir -p runs/packed && tar xzf docs/study/runs.tar.gz -C runs/packed && dara-trl report runs/packed
"""

import gzip
import io
import json
import sys
import tarfile
from pathlib import Path

from dara_trl.metrics_file import read_rows


KEPT = ("step", "max_steps", "loss", "rewards/", "eval_rewards/", "dara/", "completions/mean_length", "entropy")
LEFT_OUT = ("/std", "dara/applicable/", "dara/active_groups/")


def slim(row: dict) -> dict:
    kept = {key: value for key, value in row.items() if key.startswith(KEPT) and not any(w in key for w in LEFT_OUT)}
    return {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in kept.items()}


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    folders = sorted(path.parent for path in source.glob("*/*/*/run.json") if path.parent.suffix != ".partial")
    if not folders:
        raise SystemExit(f"{source} holds no finished runs of dara-trl compare.")
    # No times, no owners: the same runs give the same bytes.
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for folder in folders:
            rows = [slim(row) for row in read_rows(folder / "metrics.jsonl")[0]]
            lines = "".join(json.dumps(row) + "\n" for row in rows if len(row) > 2)
            texts = {"run.json": (folder / "run.json").read_text(encoding="utf-8"), "metrics.jsonl": lines}
            for name, text in texts.items():
                entry = tarfile.TarInfo(str((folder / name).relative_to(source)))
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
    print(f"{len(folders)} runs, {target.stat().st_size / 1e6:.2f} MB: {target}")


if __name__ == "__main__":
    main()
