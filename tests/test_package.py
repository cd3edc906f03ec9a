"""The package as a whole: light to import, storeys that import only downward, recipes that parse."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from trl import ModelConfig, TrlParser

import dara_trl
from dara_trl import DARAGRPOConfig
from dara_trl.compare.grid import load_grid


ROOT = Path(__file__).resolve().parents[1]
GRIDS = sorted((ROOT / "examples" / "configs" / "compare").glob("*.yaml"))
RECIPES = sorted((ROOT / "examples" / "configs").glob("*.yaml"))


def test_import_is_light():
    code = "import sys, dara_trl; print([m for m in ('torch', 'trl', 'transformers', 'datasets') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_aggregate_needs_torch_only():
    code = (
        "import sys; from dara_trl import aggregate; "
        "print([m for m in ('trl', 'transformers', 'datasets', 'wandb', 'accelerate') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves():
    assert all(getattr(dara_trl, name) is not None for name in dara_trl.__all__)
    assert set(dara_trl.__all__) <= set(dir(dara_trl))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        dara_trl.Nothing  # noqa: B018


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(("." * node.level) + node.module)
    return names


def test_storeys_import_only_downward():
    top = {"trainer", "config", "resume", "dynamic_sampling", "vllm_server"}
    for path in (ROOT / "dara_trl").rglob("*.py"):
        names = imported_modules(path)
        assert not any(name.startswith("trl.experimental") for name in names), path
        inside = {name.lstrip(".").split(".")[0] for name in names if name.startswith(".")}
        if "aggregation" in path.parts:
            outside = {name.split(".")[0] for name in names if not name.startswith(".")}
            assert outside <= {"torch", *sys.stdlib_module_names}, path
        elif path.stem not in {*top, "__init__", "recipe", "estimate"}:  # the last two are the doctor's
            assert not any(name.split(".")[0] == "trl" for name in names), path
            assert not inside & top, path


def test_version_is_in_the_changelog():
    assert f"## {dara_trl.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipes_parse_and_divide(recipe):
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from train_math import MathArguments
        from train_toolrl import ToolRLArguments
    finally:
        sys.path.pop(0)
    math = recipe.stem.startswith("math")
    assert f"examples/train_{'math' if math else 'toolrl'}.py" in recipe.read_text(encoding="utf-8")
    parser = TrlParser((MathArguments if math else ToolRLArguments, DARAGRPOConfig, ModelConfig))
    cpu = ["--use_cpu", "true", "--bf16", "false", "--report_to", "none", "--use_vllm", "false"]
    _, args, _ = parser.parse_args_and_config(["--config", str(recipe), *cpu])
    given = re.search(r"--num_processes (\d+)", recipe.read_text(encoding="utf-8"))
    processes = int(given[1]) if given else 1
    rollouts = args.per_device_train_batch_size * processes * args.steps_per_generation
    assert rollouts % args.num_generations == 0
    assert args.steps_per_generation % args.gradient_accumulation_steps == 0
    if not recipe.stem.endswith(("cpu", "1gpu")):  # the paper's scale
        assert rollouts == (8192 if math else 2048)
        assert args.steps_per_generation // args.gradient_accumulation_steps == (8 if math else 4)
        assert args.max_steps * args.gradient_accumulation_steps / args.steps_per_generation == 100


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_grids_parse(path, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from train_toolrl import ToolRLArguments

    grid = load_grid(path)
    assert grid.baseline == "gdpo"
    for run in {(run.setting, run.method): run for run in grid.runs}.values():
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump({**run.config, "output_dir": str(tmp_path)}))
        parser = TrlParser((ToolRLArguments, DARAGRPOConfig, ModelConfig))  # it would keep what one run sets
        task, args, model = parser.parse_args_and_config(["--config", str(config)])
        assert args.per_device_train_batch_size % args.num_generations == 0
        assert task.eval_size % args.per_device_eval_batch_size == 0
        assert model.model_name_or_path.startswith("embedded:tiny")


@pytest.mark.parametrize("path", sorted((ROOT / "accelerate_configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_accelerate_configs_are_known_to_accelerate(path):
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(path))
    assert config.num_processes == yaml.safe_load(path.read_text())["num_processes"]


def test_no_path_of_a_machine_in_tracked_files():
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if files.returncode:
        pytest.skip("not a git checkout")
    pattern = re.compile("/" + "(work|root|home|farm)/")
    for name in filter(None, files.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            assert not pattern.search(path.read_text(encoding="utf-8", errors="ignore")), name


def test_readme_names_exist():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z0-9-]+)", readme)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path in set(re.findall(r"(?:examples|accelerate_configs|docs)/[\w./-]+\.\w+", readme)):
        assert (ROOT / path).is_file(), path
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
