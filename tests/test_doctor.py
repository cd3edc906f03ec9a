"""`dara-trl doctor`: each check with an input on which it fires and one on which it does not."""

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from dara_trl.cli import main
from dara_trl.doctor import examine, machine, memory
from dara_trl.doctor import server as vllm_server
from dara_trl.doctor.batches import Batches, check_batches
from dara_trl.doctor.findings import Finding, as_json, as_text
from dara_trl.doctor.launch import Launch, check_launch_with_recipe, read_launch
from dara_trl.doctor.machine import Gpu
from dara_trl.doctor.memory import GIB, Shape, Training
from dara_trl.doctor.recipe import ModelConfig, Recipe, read_recipe


ROOT = Path(__file__).resolve().parents[1]
RECIPES = sorted((ROOT / "examples" / "configs").glob("*.yaml"))
A100 = Gpu("A100", 40 * GIB, bf16=True)
V100 = Gpu("V100", 32 * GIB, bf16=False)
SOUND = {
    "model_name_or_path": "Qwen/Qwen2.5-1.5B-Instruct",
    "dtype": "bfloat16",
    "per_device_train_batch_size": 16,
    "num_generations": 4,
    "gradient_accumulation_steps": 4,
    "max_steps": 100,
    "save_steps": 50,
}


def levels(findings, check=None):
    return {finding.level for finding in findings if check is None or finding.check == check}


def words(findings, level):
    return " | ".join(f"{one.check}: {one.found} -> {one.advice}" for one in findings if one.level == level)


@pytest.fixture
def diagnose(tmp_path):
    """Findings of `--recipe-only` for SOUND with changes; a value of ... takes a field away."""

    def diagnose(processes=2, config=None, **changes):
        recipe = tmp_path / "recipe.yaml"
        fields = {name: value for name, value in {**SOUND, **changes}.items() if value is not ...}
        recipe.write_text(yaml.safe_dump(fields))
        if config is not None:
            (tmp_path / "accelerate.yaml").write_text(yaml.safe_dump(config))
        path = None if config is None else tmp_path / "accelerate.yaml"
        return examine(recipe, path, processes, recipe_only=True)

    return diagnose


# Findings


def test_a_warning_or_error_must_say_what_to_do():
    assert Finding("ok", "x", "y").advice == ""
    for level in ("warning", "error"):
        with pytest.raises(ValueError, match="must say what to do"):
            Finding(level, "x", "y")


def test_json_and_text_hold_the_findings_and_no_control_characters():
    findings = [Finding("ok", "a", "b"), Finding("warning", "c\x1b[2J", "d", "e"), Finding("error", "f", "g", "h")]
    read = json.loads(as_json(findings))
    assert (read["errors"], read["warnings"]) == (1, 1)
    assert [Finding(**one) for one in read["findings"]] == findings
    text = as_text(findings)
    assert "\x1b" not in text
    assert text.splitlines()[-1] == "1 error, 1 warning"
    assert "-> h" in text


def test_command_prints_the_findings_as_json_and_returns_1_with_an_error(tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    for changes, status in (({}, 0), ({"num_generations": 1}, 1)):
        recipe.write_text(yaml.safe_dump({**SOUND, **changes}))
        assert main(["doctor", str(recipe), "--num-processes", "2", "--recipe-only", "--json"]) == status
        read = json.loads(capsys.readouterr().out)
        assert [Finding(**one) for one in read["findings"]] == examine(recipe, None, 2, recipe_only=True)
        assert main(["doctor", str(recipe), "--num-processes", "2", "--recipe-only"]) == status
        assert re.search(r"^ok +generation batch|^error +batches", capsys.readouterr().out, re.MULTILINE)


def test_command_refuses_what_it_cannot_work_with(capsys):
    assert main(["doctor", "--num-processes", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
    assert main(["doctor", "--recipe-only"]) == 2
    assert "needs a recipe" in capsys.readouterr().err


def test_a_table_in_a_terminal(tmp_path, monkeypatch, capsys):
    from dara_trl.doctor import findings

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    findings.show([Finding("error", "[red]check[/red]", "found [x]", "do")])
    out = capsys.readouterr().out
    assert "[red]check[/red]" in out
    assert "found [x]" in out
    assert "1 error" in out


# The recipes of the repository


def in_header(path):
    """The accelerate configuration and process count in the comments at the top of a recipe."""
    header = "\n".join(line for line in path.read_text().splitlines() if line.startswith("#"))
    config = re.search(r"--config_file (\S+)", header)
    processes = re.search(r"--num_processes (\d+)", header)
    return config and ROOT / config[1], processes and int(processes[1])


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipes_are_free_of_errors(recipe):
    config, processes = in_header(recipe)
    assert config or processes
    findings = examine(recipe, config, processes, recipe_only=True)
    assert "error" not in levels(findings), words(findings, "error")
    warnings = re.sub(r"accelerate config: \d+ machines, and no main_process_ip [^|]*", "", words(findings, "warning"))
    assert not re.sub(r"accelerate config: the file starts \d+ process\S*, not \d+ -> [^|]*", "", warnings).strip(
        " |"
    ) or (recipe.stem.endswith("_cpu") and "save_strategy" in warnings)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_here_only_the_machine_is_wrong_with_the_recipes(recipe, monkeypatch):
    config, processes = in_header(recipe)
    monkeypatch.setattr(
        vllm_server, "ask", lambda url, timeout=None: (_ for _ in ()).throw(vllm_server.NoAnswerError("no"))
    )
    monkeypatch.setattr(machine, "visible_gpus", list)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**15, 0, 10**15))
    findings = examine(recipe, config, processes)
    errors = {finding.check for finding in findings if finding.level == "error"}
    assert errors <= {"GPUs", "vllm", "deepspeed", "vLLM server"}
    assert ("GPUs" in errors) == (not recipe.stem.endswith("_cpu"))


# Fields of a recipe


def test_a_sound_recipe_has_neither_errors_nor_warnings(diagnose):
    assert levels(diagnose()) == {"ok"}


@pytest.mark.parametrize(
    ("changes", "level", "text"),
    [
        ({"learing_rate": 1e-5}, "warning", "if you mean learning_rate"),
        ({"num_generation": 4}, "warning", "if you mean num_generations"),
        ({"aggregation": "dara"}, "error", "aggregation must be one of grpo"),
        ({"aggregation_max_weight": 0.5}, "error", "at least 1"),
        ({"learning_rate": "fast"}, "error", "learning_rate"),
        ({"per_device_train_batch_size": "many"}, "error", "per_device_train_batch_size"),
        ({"reward_weights": [1]}, "ok", ""),
        ({"reward_weights": [1], "rewards": ["a", "b"]}, "error", "reward_weights has 1 entries, rewards has 2"),
        (
            {"aggregation": "static_sym", "aggregation_static_weights": [1, 2, 3], "rewards": ["a", "b"]},
            "error",
            "aggregation_static_weights has 3 entries",
        ),
        ({"reward_weights": [1, 2], "rewards": ["a", "b"]}, "ok", ""),
        ({"save_strategy": "no"}, "warning", "a run that dies is lost"),
        ({"save_steps": 100}, "warning", "none before the end -> save_steps: 25"),
        ({"save_steps": 1000}, "warning", "none before the end"),
        ({"save_strategy": "epoch"}, "ok", ""),
        ({"steps_per_generation": 16, "save_steps": 50}, "warning", "save_steps: 52"),
        ({"steps_per_generation": 16, "save_steps": 48}, "ok", ""),
        ({"num_iterations": 3, "save_steps": 50}, "warning", "save_steps: 51"),
        ({"log_completions": True}, "warning", "all 128 completions are printed"),
        ({"log_completions": True, "num_completions_to_print": 4}, "ok", ""),
        ({"use_peft": True}, "warning", "learning_rate 1e-06 is small"),
        ({"use_peft": True, "learning_rate": 1e-5}, "ok", ""),
        ({"use_vllm": True, "vllm_tensor_parallel_size": 4}, "error", "does not divide 2 processes -> one of 1, 2"),
        ({"use_vllm": True, "vllm_tensor_parallel_size": 2}, "ok", ""),
        ({"use_vllm": True, "vllm_max_model_length": 512, "max_completion_length": 512}, "error", "holds no prompt"),
        ({"use_vllm": True, "vllm_max_model_length": 2048}, "ok", ""),
        ({"use_vllm": True, "vllm_gpu_memory_utilization": 1.5}, "error", "share of the GPU's memory"),
        ({"use_cpu": True}, "warning", "silently runs one process"),
    ],
    ids=str,
)
def test_fields(diagnose, changes, level, text):
    findings = diagnose(**changes)
    assert max(levels(findings), key=("ok", "warning", "error").index) == level, words(findings, "error")
    assert text in words(findings, level)


def test_fields_of_ones_own_script_are_listed_and_no_fault(diagnose):
    findings = diagnose(dataset="x.parquet", max_think_words=3)
    assert levels(findings) == {"ok"}
    assert "for your script: dataset, max_think_words" in words(findings, "ok")


def test_what_else_is_wrong_is_found_beside_a_wrong_batch(diagnose):
    text = words(diagnose(per_device_train_batch_size=3, num_generations=5, aggregation="dara"), "error")
    assert "make no whole groups of 5" in text
    assert "aggregation must be one of" in text


def test_lengths_against_the_model_s_context(diagnose, tiny_model):
    model = {"model_name_or_path": tiny_model}
    assert "leaves 156 tokens" in words(diagnose(**model, max_completion_length=100), "ok")
    assert "no room for a prompt" in words(diagnose(**model, max_completion_length=256), "error")


def test_an_environment_of_a_launcher_is_left_alone(diagnose, monkeypatch):
    for name, value in {"WORLD_SIZE": "64", "RANK": "3", "LOCAL_RANK": "3", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    assert levels(diagnose()) == {"ok"}
    import os

    assert (os.environ["WORLD_SIZE"], os.environ["RANK"]) == ("64", "3")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"- a\n- b",
        b"just words",
        b"a: [1, 2",
        b"1: x",
        b"\xff\xfe\x00",
        b"a: !!python/object/apply:os.system ['true']",
        b"a: " + b"[" * 1000 + b"]" * 1000,
        b"a0: &a0 [x, x]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 12))
        + b"learning_rate: *a11\n",
        b"learning_rate: &a [*a]",
        b"x: " + b"a" * 1_100_000,
        b"date: 2026-99-99",
        b"learning_rate: {a: b}",
        b"num_generations: .nan",
        b"per_device_train_batch_size: 1e400",
        b"per_device_train_batch_size: 99999999999999999999",
        b"num_generations: -4",
        b"gradient_accumulation_steps: 0",
        b"model_name_or_path: ['x']\nlearning_rate: bad",
        b"max_completion_length: [1]",
    ],
    ids=lambda content: repr(content[:30]),
)
def test_hostile_yaml_is_an_error_and_no_traceback(content, tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_bytes(content)
    start = time.monotonic()
    assert main(["doctor", str(recipe), "--num-processes", "2", "--recipe-only", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["errors"] >= 1
    assert time.monotonic() - start < 5
    assert main(["doctor", "--accelerate-config", str(recipe), "--recipe-only"]) == 1


def test_a_file_that_is_not_there_or_is_none(tmp_path):
    for path in (tmp_path / "absent.yaml", tmp_path, Path("/dev/zero")):
        assert "recipe: " in words(examine(path, None, 1, recipe_only=True), "error")


def test_terminal_codes_in_names_do_not_reach_the_terminal(tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text('"\\e[2Jx": 1\n')
    main(["doctor", str(recipe), "--num-processes", "1", "--recipe-only"])
    assert "\x1b" not in capsys.readouterr().out


# Batches


@pytest.mark.parametrize(
    ("sizes", "check", "level", "text"),
    [
        ({}, "generation batch", "ok", "16 x 2 x 4 = 128 rollouts, 32 groups of 4"),
        ({}, "updates", "ok", "1 a generation batch"),
        ({"per_device": 3, "num_generations": 16}, "generation batch", "error", "batch_size: 2 or 4; or steps_"),
        ({"per_device": 3, "num_generations": 16}, "generation batch", "error", "steps_per_generation: 8; or"),
        ({"per_device": 3, "num_generations": 16}, "generation batch", "error", "num_generations: 12 or 24"),
        ({"generation_batch_size": 100}, "generation batch", "error", "generation_batch_size: 96 or 128"),
        ({"generation_batch_size": 96, "num_generations": 5}, "generation batch", "error", "_size: 160"),
        ({"generation_batch_size": 96}, "generation batch", "ok", "16 x 2 x 3 = 96"),
        ({"generation_batch_size": 64, "steps_per_generation": 2}, "generation batch", "error", "drop"),
        ({"per_device": 6}, "generation batch", "warning", "12 groups"),
        ({"per_device": 8}, "generation batch", "ok", "16 groups"),
        ({"per_device": 6, "num_generations": 16, "processes": 8}, "groups over processes", "ok", "span two"),
        ({"steps_per_generation": 6}, "updates", "warning", "gradient_accumulation_steps: 3 or 6"),
        ({"steps_per_generation": 6, "num_iterations": 2}, "updates", "ok", "3 a generation batch"),
        ({"per_device": 0}, "batches", "error", "per_device is 0"),
        ({"num_generations": 1}, "batches", "error", "num_generations at least 2"),
        ({"evaluates": True, "per_device_eval": 3}, "evaluation batch", "error", "batch_size: 2 or 4, or"),
        ({"evaluates": True, "per_device_eval": 6}, "evaluation batch", "ok", "3 groups of 4"),
        ({"evaluates": True, "per_device_eval": 3, "num_generations_eval": 1}, "evaluation batch", "ok", "6 groups"),
    ],
    ids=str,
)
def test_batches(sizes, check, level, text):
    base = Batches(processes=2, per_device=16, accumulation=4, num_generations=4)
    found = [one for one in check_batches(replace(base, **sizes)) if one.check == check]
    assert [one.level for one in found] == [level]
    assert text in f"{found[0].found} {found[0].advice}"


def test_suggested_batches_work(diagnose):
    findings = diagnose(processes=6, per_device_train_batch_size=7, num_generations=16)
    advice = next(one.advice for one in findings if one.check == "generation batch")
    fields = {"per_device_train_batch_size": r"per_device_train_batch_size: ([\d or]+)"}
    fields |= {
        "steps_per_generation": r"steps_per_generation: ([\d or]+)",
        "num_generations": r"num_generations: ([\d or]+)",
    }
    tried = 0
    for name, pattern in fields.items():
        for value in map(int, re.search(pattern, advice)[1].split(" or ")):
            changes = {"per_device_train_batch_size": 7, "num_generations": 16, name: value}
            assert "error" not in levels(diagnose(processes=6, **changes)), changes
            tried += 1
    assert tried >= 4


def test_batches_agree_with_trl(diagnose):
    for per_device in range(1, 9):
        for processes in (1, 2, 3):
            for group in (2, 3, 4, 6):
                sizes = {"per_device_train_batch_size": per_device, "num_generations": group}
                findings = diagnose(processes=processes, gradient_accumulation_steps=1, **sizes)
                wrong = "error" in levels(findings, "generation batch")
                assert wrong == bool(per_device * processes % group)
                assert ("error" in levels(findings)) == wrong


# Launches

DDP = {"distributed_type": "MULTI_GPU", "num_processes": 2, "num_machines": 1, "mixed_precision": "bf16"}
ZERO = {**DDP, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 2}}
FSDP = {**DDP, "distributed_type": "FSDP"}
NODES = {**ZERO, "num_machines": 2, "num_processes": 4, "main_process_ip": "10.0.0.1"}
STANDARD = {"zero_stage": 2, "deepspeed_multinode_launcher": "standard"}


@pytest.mark.parametrize(
    ("config", "processes", "level", "text"),
    [
        (DDP, 2, "ok", "2 processes, MULTI_GPU"),
        (DDP, None, "ok", "2 processes, MULTI_GPU"),
        (DDP, 4, "warning", "accelerate launch needs --num_processes 4"),
        ({**DDP, "num_processes": 1}, None, "warning", "MULTI_GPU with one process"),
        ({**DDP, "distributed_type": "MULTI_CPU", "use_cpu": True}, 2, "error", "silently runs ONE process"),
        ({**DDP, "distributed_type": "NO"}, 2, "error", "silently runs ONE process"),
        ({**DDP, "distributed_type": "NO", "num_processes": 1}, 1, "ok", "1 process, NO"),
        ({**DDP, "use_cpu": True}, 2, "ok", "MULTI_GPU on the CPU"),
        ({**DDP, "num_processes": -1}, None, "error", "num_processes is -1"),
        ({**DDP, "surprise": 1}, 2, "error", "accelerate cannot load"),
        ({"num_processes": 2}, 2, "error", "accelerate cannot load"),
        ({**DDP, "distributed_type": "MAGIC"}, 2, "error", "accelerate cannot load"),
        ({**DDP, "num_machines": "many"}, 2, "error", "many"),
        ({**ZERO, "deepspeed_config": {"zero_stage": 7}}, 2, "error", "zero_stage is 7"),
        ({**ZERO, "use_cpu": True}, 2, "warning", "use_cpu: false in the file"),
        ({**ZERO, "deepspeed_config": {"zero_stage": 3}}, 2, "warning", "zero3_save_16bit_model: true"),
        ({**ZERO, "deepspeed_config": {"zero_stage": 3, "zero3_save_16bit_model": True}}, 2, "ok", "DEEPSPEED"),
        ({**FSDP, "fsdp_config": {"fsdp_version": 1}}, 2, "warning", "fsdp_version: 2"),
        ({**FSDP, "fsdp_config": {"fsdp_version": 2}}, 2, "ok", "FSDP"),
        ({**NODES, "deepspeed_config": STANDARD}, 4, "ok", "4 processes"),
        ({**NODES, "deepspeed_config": STANDARD}, 5, "error", "num_processes: 6 or 4"),
        ({**NODES, "deepspeed_config": STANDARD, "main_process_ip": None}, 4, "warning", "--machine_rank"),
        (NODES, 4, "warning", "deepspeed_multinode_launcher: standard"),
    ],
    ids=str,
)
def test_accelerate_config(tmp_path, config, processes, level, text):
    path = tmp_path / "accelerate.yaml"
    path.write_text(yaml.safe_dump(config))
    _, findings = read_launch(path, processes)
    assert max(levels(findings), key=("ok", "warning", "error").index) == level
    assert text in words(findings, level)


def test_without_a_config_there_is_one_process_for_each_gpu():
    assert read_launch(None, None, default=8) == (Launch(8, sharding="ddp"), [])
    assert read_launch(None, 1, default=8) == (Launch(1), [])


@pytest.mark.parametrize("path", sorted((ROOT / "accelerate_configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_accelerate_configs_of_the_repository(path):
    launch, findings = read_launch(path, None)
    assert "error" not in levels(findings), words(findings, "error")
    assert launch.processes == yaml.safe_load(path.read_text())["num_processes"]


def test_a_deepspeed_file_has_the_last_word(tmp_path):
    (tmp_path / "ds.json").write_text(
        json.dumps({"zero_optimization": {"stage": 3}, "gradient_accumulation_steps": 2})
    )
    path = tmp_path / "accelerate.yaml"
    path.write_text(yaml.safe_dump({**ZERO, "deepspeed_config": {"deepspeed_config_file": str(tmp_path / "ds.json")}}))
    launch, _ = read_launch(path, 2)
    assert (launch.sharding, launch.accumulation) == ("zero3", 2)
    (tmp_path / "ds.json").unlink()
    assert "error" in levels(read_launch(path, 2)[1])


@pytest.mark.parametrize(
    ("launch", "recipe", "level", "text"),
    [
        ({"accumulation": 1}, {}, "error", "gradient_accumulation_steps: auto"),
        ({"accumulation": 4}, {}, None, ""),
        ({"accumulation": "auto"}, {}, None, ""),
        ({"sharded_state_dict": True}, {}, "error", "FULL_STATE_DICT"),
        ({"sharded_state_dict": True}, {"saves": False}, None, ""),
        ({"from_file": False}, {"on_cpu": True}, "warning", "silently runs one process"),
        ({}, {"on_cpu": True}, None, ""),
        ({"sharding": "fsdp"}, {"on_cpu": True}, "warning", "plain DDP"),
        ({"mixed_precision": "fp16"}, {}, "warning", "mixed_precision is fp16"),
        ({"mixed_precision": "bf16"}, {}, None, ""),
        ({"mixed_precision": "bf16"}, {"bf16": False}, "warning", "bf16 is false"),
    ],
    ids=str,
)
def test_accelerate_config_against_the_recipe(launch, recipe, level, text):
    launch = replace(Launch(2, sharding="zero2", from_file=True), **launch)
    given = {"accumulation": 4, "saves": True, "on_cpu": False, "bf16": True, **recipe}
    findings = check_launch_with_recipe(launch, **given)
    assert levels(findings) == ({level} if level else set())
    assert text in words(findings, level)


def test_traps_of_a_config_are_found_through_the_command(diagnose):
    fixed = {**ZERO, "deepspeed_config": {"zero_stage": 2, "gradient_accumulation_steps": 1}}
    assert "gradient_accumulation_steps: 1 in the file, 4" in words(diagnose(config=fixed), "error")
    shards = {**FSDP, "fsdp_config": {"fsdp_version": 2, "fsdp_state_dict_type": "SHARDED_STATE_DICT"}}
    assert "save_model() writes no weights" in words(diagnose(config=shards), "error")


# The machine


def versions(**changes):
    found = {"torch": "2.13.0+cpu", "trl": "1.16.0", "transformers": "5.24.0", "accelerate": "1.15.0", **changes}
    return found.get


@pytest.mark.parametrize(
    ("changes", "needed", "level", "text"),
    [
        ({}, [], "ok", ""),
        ({"trl": "1.6.0"}, [], "ok", ""),
        ({"trl": "1.16.3"}, [], "ok", ""),
        ({"trl": "1.5.1"}, [], "error", "at least 1.6 is needed -> pip install 'trl==1.16.*'"),
        ({"trl": "1.17.0"}, [], "warning", "not tested"),
        ({"trl": "2.0.0"}, [], "warning", "not tested"),
        ({"transformers": None}, [], "error", "pip install 'transformers>=5.0'"),
        ({"torch": "2.5.1"}, [], "error", "at least 2.6"),
        ({"accelerate": "main"}, [], "warning", "no version"),
        ({}, ["peft"], "error", "pip install 'dara-trl[peft]'"),
        ({}, ["deepspeed"], "error", "pip install 'dara-trl[deepspeed]'"),
        ({}, ["wandb"], "error", "pip install 'dara-trl[wandb]'"),
        ({}, ["trackio"], "error", "pip install 'dara-trl[trackio]'"),
        ({}, ["bitsandbytes"], "error", "pip install bitsandbytes"),
        ({}, ["vllm"], "error", "pip install 'dara-trl[vllm]'"),
        ({"peft": "0.21.2"}, ["peft"], "ok", ""),
        ({"peft": "0.10.0"}, ["peft"], "error", "at least 0.17"),
        ({"vllm": "0.31.0+cu129"}, ["vllm"], "ok", ""),
        ({"vllm": "0.31.1"}, ["vllm"], "error", "supports"),
        ({"vllm": "0.21.0"}, ["vllm"], "error", "at least 0.22"),
    ],
    ids=str,
)
def test_versions(changes, needed, level, text):
    findings = machine.check_versions(needed, versions(**changes), ">=0.22.0,<=0.31.0")
    assert max(levels(findings), key=("ok", "warning", "error").index) == level
    assert text in words(findings, level)


def test_supported_versions_are_those_of_the_package_s_metadata():
    pyproject = (ROOT / "pyproject.toml").read_text()
    floors = {name: floor for name, (floor, _) in machine.SUPPORTED.items()}
    floors |= {name: floor for name, (floor, extra) in machine.OPTIONAL.items() if extra}
    for name, floor in floors.items():
        assert f'"{name}>={floor}"' in pyproject
    for extra in filter(None, (extra for _, extra in machine.OPTIONAL.values())):
        assert re.search(rf"^{extra} = ", pyproject, re.MULTILINE)
    newest = machine.SUPPORTED["trl"][1]
    assert f"TRL 1.6 to {newest}" in (ROOT / "CHANGELOG.md").read_text()


def test_vllm_range_is_the_installed_trl_s(monkeypatch):
    monkeypatch.setattr(machine.importlib.metadata, "requires", lambda name: ['vllm<=9,>=8; extra == "vllm"', "torch"])
    assert sorted(machine.trl_vllm_range().split(",")) == ["<=9", ">=8"]
    monkeypatch.setattr(machine.importlib.metadata, "requires", lambda name: None)
    assert machine.trl_vllm_range() == machine.VLLM_RANGE


def test_needed_packages():
    plain = Recipe({"report_to": "none"})
    assert machine.needed_packages(plain, Launch()) == []
    assert machine.needed_packages(None, Launch(2, sharding="zero3")) == ["deepspeed"]
    given = {"use_peft": True, "use_vllm": True, "report_to": ["wandb", "trackio"], "load_in_4bit": True}
    assert machine.needed_packages(Recipe(given), Launch(2, sharding="ddp")) == [
        *["peft", "vllm", "wandb", "trackio", "bitsandbytes"]
    ]
    assert machine.needed_packages(Recipe({"deepspeed": "ds.json"}), Launch()) == ["deepspeed"]


@pytest.mark.parametrize(
    ("gpus", "given", "launch", "server", "level", "text"),
    [
        ([A100] * 4, {}, {}, False, "ok", "4 x A100 with 40 GiB"),
        ([], {}, {}, False, "error", "no GPU on this machine, but"),
        ([], {"use_cpu": True}, {}, False, "ok", "trains on the CPU"),
        ([], {}, {"use_cpu": True}, False, "ok", "trains on the CPU"),
        ([A100], {}, {}, False, "error", "2 processes on this machine"),
        ([A100], {}, {"machines": 2}, False, "ok", ""),
        ([A100, V100], {}, {}, False, "error", "bf16: false, fp16: true"),
        ([A100, V100], {"fp16": True}, {}, False, "warning", "differ in memory"),
        ([V100] * 2, {"bf16": False}, {}, False, "ok", ""),
        ([A100] * 2, {}, {}, True, "error", "server needs its own"),
        ([A100] * 3, {}, {}, True, "ok", "1 left"),
    ],
    ids=str,
)
def test_gpus(gpus, given, launch, server, level, text):
    launch = replace(Launch(2, sharding="ddp"), **launch)
    findings = machine.check_gpus(gpus, Recipe(given), launch, server, None)
    assert max(levels(findings), key=("ok", "warning", "error").index) == level
    assert text in words(findings, level)


def test_gpus_that_are_hidden_may_be_the_server_s():
    findings = machine.check_gpus([A100] * 2, Recipe({}), Launch(2, sharding="ddp"), True, "2,3")
    assert levels(findings) == {"ok"}
    assert "others than 2,3" in words(findings, "ok")
    assert levels(machine.check_gpus([], None, Launch(), False, None)) == {"ok"}


def test_gpu_memory():
    check = machine.check_gpu_memory
    assert check(50 * GIB, [], 0, 0) == []
    assert levels(check(39 * GIB, [A100], 0, 0)) == {"ok"}
    assert "halve per_device" in words(check(41 * GIB, [A100], 0, 0), "warning")
    assert "12.0 of it vLLM's" in words(check(30 * GIB, [A100], 0.3, 3 * GIB), "warning")
    assert levels(check(20 * GIB, [A100], 0.3, 3 * GIB)) == {"ok"}
    assert "hardly holds its weights" in words(check(20 * GIB, [A100], 0.3, 14 * GIB), "warning")
    assert levels(check(30 * GIB, [A100, V100], 0, 0)) == {"ok"}
    assert levels(check(33 * GIB, [A100, V100], 0, 0)) == {"warning"}


def test_wandb(tmp_path):
    def check(environment=None):
        return machine.check_wandb(environment or {}, tmp_path, tmp_path)

    assert check().level == "error"
    assert "wandb login" in check().advice
    for environment in ({"WANDB_API_KEY": "k"}, {"WANDB_MODE": "offline"}, {"WANDB_DISABLED": "true"}):
        assert check(environment).level == "ok"
    assert check({"WANDB_MODE": "online"}).level == "error"
    (tmp_path / ".netrc").write_text("machine elsewhere.org login user password x\n")
    assert check().level == "error"
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password x\n")
    assert check().level == "ok"
    assert check({"WANDB_BASE_URL": "https://wandb.example.org"}).level == "error"
    (tmp_path / ".netrc").write_text("not a netrc\n")
    assert check().level == "error"
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nmode = offline\n")
    assert check().level == "ok"


def test_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100 * GIB, 0, 10 * GIB))
    folder = tmp_path / "runs" / "new"
    assert machine.check_disk(folder, 4 * GIB, 2).level == "ok"
    assert machine.check_disk(folder, 4 * GIB, 3).level == "warning"
    assert machine.check_disk(folder, 11 * GIB, 1).level == "error"
    assert machine.check_disk(folder, 11 * GIB, 0).level == "ok"
    assert "unknown" in machine.check_disk(folder, None, 3).found
    assert "unknown" in machine.check_disk(folder, GIB, None).found
    monkeypatch.setattr(machine.os, "access", lambda *arguments: False)
    assert "cannot be written" in machine.check_disk(folder, 1, 1).found
    assert not (tmp_path / "runs").exists()


def test_the_whole_command_here_within_seconds_and_without_network(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({**SOUND, "use_cpu": True, "bf16": False, "output_dir": str(tmp_path / "out")}))
    code = (
        "import socket, sys; socket.socket.connect = lambda *a: sys.exit('network'); "
        f"from dara_trl.cli import main; sys.exit(main(['doctor', {str(recipe)!r}, '--num-processes', '1', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {finding["check"] for finding in json.loads(done.stdout)["findings"]}
    assert {"python", "trl", "GPUs", "disk", "recipe"} <= checks
    assert not (tmp_path / "out").exists()


# The server


class Server:
    """A vLLM server's endpoints. `answers` maps a path to a status and a JSON value, bytes, or seconds of silence."""

    def __init__(self):
        outer = self
        info = {"vllm_config": {"weight_transfer_config": {"backend": "nccl"}}}
        self.answers = {
            "/health": (200, b""),
            "/v1/models": (
                200,
                {"data": [{"id": "Qwen/Qwen2.5-1.5B-Instruct", "root": "Qwen/Qwen2.5-1.5B-Instruct"}]},
            ),
            "/server_info?config_format=json": (200, info),
            "/get_world_size": (200, {"world_size": 2}),
        }
        self.asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                status, body = outer.answers.get(self.path, (404, b""))
                if callable(body):
                    return body(self)
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                return self.wfile.write(body)

            def do_POST(self):
                outer.asked.append(f"POST {self.path}")

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}).start()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def ask(server, port=0, model="Qwen/Qwen2.5-1.5B-Instruct"):
    return vllm_server.check_server(server.url, model, port)


def test_the_right_server(server):
    findings = ask(server)
    assert levels(findings) == {"ok"}
    assert "NCCL, 2 workers" in words(findings, "ok")
    assert "cannot be tried" in words(findings, "ok")
    assert not any(path.startswith("POST") for path in server.asked)


def test_an_alias_is_no_wrong_model(server, tmp_path):
    server.answers["/v1/models"] = (200, {"data": [{"id": "policy", "root": "Qwen/Qwen2.5-1.5B-Instruct"}]})
    assert levels(ask(server)) == {"ok"}
    server.answers["/v1/models"] = (200, {"data": [{"id": str(tmp_path)}]})
    assert levels(ask(server, model=f"{tmp_path}/../{tmp_path.name}")) == {"ok"}


@pytest.mark.parametrize(
    ("path", "answer", "check", "text"),
    [
        ("/health", (503, b""), "vLLM server", "status 503 -> start it, and wait"),
        ("/v1/models", (200, {"data": [{"id": "other/model"}]}), "vLLM model", "the server has 'other/model'"),
        ("/v1/models", (200, {"data": []}), "vLLM model", "names no model"),
        ("/v1/models", (200, b"<html>"), "vLLM model", "names no model"),
        ("/v1/models", (401, {}), "vLLM model", "names no model"),
        ("/server_info?config_format=json", (404, b""), "vLLM weight transfer", "VLLM_SERVER_DEV_MODE=1"),
        ("/server_info?config_format=json", (200, {}), "vLLM weight transfer", "no weight_transfer_config"),
        ("/server_info?config_format=json", (500, b"no"), "vLLM weight transfer", "status 500"),
        (
            "/server_info?config_format=json",
            (200, {"vllm_config": {"weight_transfer_config": None}}),
            "vLLM weight transfer",
            "no weight-transfer engine",
        ),
        (
            "/server_info?config_format=json",
            (200, {"vllm_config": {"weight_transfer_config": {"backend": "gloo"}}}),
            "vLLM weight transfer",
            "the backend is 'gloo'",
        ),
        ("/get_world_size", (404, b""), "vLLM weight transfer", "number of workers"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_can_be_wrong_with_a_server(server, path, answer, check, text):
    server.answers[path] = answer
    errors = [finding for finding in ask(server) if finding.level == "error"]
    assert [finding.check for finding in errors] == [check]
    assert text in words(errors, "error")
    assert "vllm serve Qwen/Qwen2.5-1.5B-Instruct" in errors[0].advice


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/server_info?config_format=json"])
def test_a_server_that_hangs_or_drips_is_given_up(server, path, monkeypatch):
    assert vllm_server.TIMEOUT == 3
    monkeypatch.setattr(vllm_server, "TIMEOUT", 0.5)
    monkeypatch.setattr(vllm_server, "INFO_TIMEOUT", 0.5)

    def drip(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.1)

    def hang(handler):
        time.sleep(10)

    for body in (hang, drip):
        server.answers[path] = (200, body)
        start = time.monotonic()
        text = words(ask(server), "error")
        assert time.monotonic() - start < 5  # the answers take ten
        assert "no answer within" in text or "names no model" in text


def test_a_server_that_never_ends_its_answer_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(vllm_server, "LARGEST_ANSWER", 1000)
    server.answers["/v1/models"] = (200, b"x" * 2000)
    assert "names no model" in words(ask(server), "error")


def test_a_refused_connection_gives_the_command(free_port):
    findings = vllm_server.check_server(f"http://127.0.0.1:{free_port}", "some/model 7B", 0)
    assert levels(findings) == {"error"}
    assert (
        f"VLLM_SERVER_DEV_MODE=1 vllm serve 'some/model 7B' --port {free_port} --weight-transfer-config "
        '\'{"backend":"nccl"}\' --logprobs-mode processed_logprobs --max-logprobs -1'
    ) in findings[0].advice
    assert "--enable-scale-out" in vllm_server.serve_command("m", 8000, scale_out=True)
    assert "--port" not in vllm_server.serve_command("m", 8000)
    assert [machine.vllm_has_scale_out(version) for version in (None, "0.30.0", "0.29.1", "odd")] == [
        *[True, True, False, False]
    ]


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host", "http://", "http://host:99999", "http://[::1"])
def test_a_url_that_is_none(url):
    assert "is no URL" in words(vllm_server.check_server(url, "m", 0), "error")


def test_a_url_with_a_slash_at_its_end(server):
    assert "//health" in words(vllm_server.check_server(server.url + "/", "m", 0), "error")


def test_group_port():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        assert vllm_server.check_group_port(taken.getsockname()[1]).level == "error"
    assert vllm_server.check_group_port(0).level == "ok"
    assert vllm_server.check_group_port(99999).level == "error"


def test_where_the_server_of_a_recipe_is():
    def url(**given):
        return Recipe({"use_vllm": True, "vllm_mode": "server", **given}).server_url

    assert url() == "http://0.0.0.0:8000"
    assert url(vllm_server_host="node1", vllm_server_port=9000) == "http://node1:9000"
    assert url(vllm_server_host="node1", vllm_server_base_url="http://node2:1") == "http://node2:1"
    assert url(vllm_mode="colocate") is None
    assert url(use_vllm=False) is None
    assert vllm_server.is_local(url())
    assert not vllm_server.is_local("http://node1:8000")


def test_the_server_through_the_command(server, tmp_path, monkeypatch):
    recipe = tmp_path / "recipe.yaml"
    fields = {**SOUND, "use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": server.url}
    recipe.write_text(yaml.safe_dump({**fields, "vllm_group_port": 0, "output_dir": str(tmp_path)}))
    monkeypatch.setattr(machine, "visible_gpus", lambda: [A100] * 3)
    monkeypatch.setattr(machine, "installed_version", lambda name: None)
    assert levels(examine(recipe, None, 2), "vLLM model") == {"ok"}
    recipe.write_text(yaml.safe_dump({**fields, "model_name_or_path": "Qwen/Qwen2.5-3B", "output_dir": str(tmp_path)}))
    assert levels(examine(recipe, None, 2), "vLLM model") == {"error"}


# Sizes, by hand

TINY = Shape(10, 2, 2, 1, 30, 100, 5, tied=True)


def test_parameters_by_hand():
    # Block: q 10·10, k and v 10·5 each, o 10·10, three of 10·30, two norms of 10. Embedding 100·10, last norm 10.
    assert TINY.block_parameters == 100 + 2 * 50 + 100 + 900 + 20
    assert TINY.parameters == 1000 + 2 * 1220 + 10
    assert replace(TINY, tied=False).parameters == TINY.parameters + 1000
    assert replace(TINY, qkv_bias=True).parameters == TINY.parameters + 2 * (10 + 5 + 5)
    assert replace(TINY, qk_norm=True).parameters == TINY.parameters + 2 * 2 * 5


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768),
        ("Qwen/Qwen2.5-1.5B", 1_543_714_304),
        ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688),
        ("some/folder/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("Qwen/Qwen2.5-32B", 32_763_876_352),
        ("Qwen/Qwen3-4B-Instruct-2507", 4_022_468_096),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1_777_088_000),
    ],
)
def test_published_parameter_counts(name, count):
    assert memory.known_shape(name).parameters == count


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-72B", "Qwen2.5", "mine-Qwen2.5-7B", "Qwen/Qwen2.5-7B1", ""])
def test_unknown_names_have_no_shape(name):
    assert memory.known_shape(name) is None


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("a/b-7B-chat", 7e9),
        ("x-1.5b", 1.5e9),
        ("SmolLM2-135M-Instruct", 135e6),
        ("embedded:tiny:seed=1", 146_000),
        ("embedded:nothing", None),
        ("Mixtral-8x7B", None),
        ("a-7B-to-3B", None),
        ("folder-7B/model", None),
        ("v2b3", None),
        ("no size", None),
    ],
)
def test_parameters_in_a_name(name, count):
    assert memory.parameters_in_name(name) == count


def test_shape_of_a_config_is_that_of_the_real_model(tiny_model):
    from transformers import AutoConfig, AutoModelForCausalLM, Qwen3Config

    config = json.loads((Path(tiny_model) / "config.json").read_text())
    shape = memory.shape_of_config(config)
    real = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tiny_model))
    assert shape.parameters == real.num_parameters()
    assert shape.context == 256
    small = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    small |= {"intermediate_size": 12, "vocab_size": 20, "head_dim": 6}
    for tied in (True, False):
        config = Qwen3Config(**small, tie_word_embeddings=tied)
        real = AutoModelForCausalLM.from_config(config)
        assert memory.shape_of_config(config.to_dict()).parameters == real.num_parameters()
    for change in ({"model_type": "gpt2"}, {"hidden_size": "8"}, {"num_hidden_layers": 10**12}, {"vocab_size": None}):
        assert memory.shape_of_config({**config.to_dict(), **change}) is None


def test_lora_parameters_by_hand():
    # Both layers: q 10+10, v 10+5; all: q 20, k 15, v 15, o 20, gate 40, up 40, down 40.
    assert memory.lora_parameters(TINY, 4, None) == 2 * 4 * 35
    assert memory.lora_parameters(TINY, 4, ["q_proj", "v_proj"]) == 2 * 4 * 35
    assert (
        memory.lora_parameters(TINY, 4, ["all-linear"]) == memory.lora_parameters(TINY, 4, "all-linear") == 2 * 4 * 190
    )


@pytest.mark.parametrize(
    ("training", "per_parameter"),
    [
        (Training(1, "none"), [2, 2, 4]),
        (Training(1, "none", dtype_size=4), [4, 4, 8]),
        (Training(4, "ddp"), [2, 2, 2, 4]),  # with DDP's buckets
        (Training(4, "zero1"), [2, 2, 3]),
        (Training(4, "zero2"), [2, 0.5, 3]),
        (Training(4, "zero3"), [0.5, 0.5, 3]),
        (Training(4, "zero3", half=False), [1, 1, 2]),
        (Training(4, "fsdp"), [1, 1, 2]),
        (Training(4, "fsdp", dtype_size=2, half=False), [0.5, 0.5, 1]),
        (Training(4, "zero2", reference=True), [2, 0.5, 3, 2]),
        (Training(4, "zero3", reference=True), [0.5, 0.5, 3, 0.5]),
        (Training(1, "none", reference=True), [2, 2, 4, 2]),
        (Training(4, "zero2", offload_optimizer=True), [2, 0.5, 0]),
        (Training(4, "zero3", offload_optimizer=True, offload_parameters=True), [0, 0.5, 0]),
    ],
    ids=str,
)
def test_bytes_per_parameter(training, per_parameter):
    assert [part.size for part in memory.model_states(1_000_000, training)] == [1e6 * size for size in per_parameter]


def test_lora_trains_in_float32_on_frozen_weights():
    sizes = [part.size for part in memory.model_states(1000, Training(1, "none", lora=10))]
    assert sizes == [2000, 40, 40, 80]
    sizes = [part.size for part in memory.model_states(1000, Training(1, "none", dtype_size=0.5, lora=10))]
    assert sizes == [500, 40, 40, 80]
    sizes = [part.size for part in memory.model_states(1000, Training(2, "zero3", lora=10))]
    assert sizes == [1000, 10, 10, 60]


def test_activations_by_hand():
    training = Training(1, "none", sequences=3, prompt_tokens=5, completion_tokens=7)
    parts = {part.name: part.size for part in memory.training_peak(TINY, training)}
    # 36 tokens; a block keeps 8·10 + 4·30 = 200 numbers of 2 bytes for each; the head a tile of 21·100, and 4·100·10.
    assert parts == {"checkpoints": 2 * 36 * 10 * 2, "one block recomputed": 2 * 36 * 200, "logits": 4200 + 4000}
    parts = {
        part.name: part.size for part in memory.training_peak(TINY, replace(training, checkpointing=False, lora=9))
    }
    assert parts == {"activations": 2 * 36 * 200 * 2, "logits": 4200}
    parts = {part.name: part.size for part in memory.training_peak(TINY, replace(training, fused_head=False))}
    assert parts["logits"] == 8 * 21 * 100
    parts = {part.name: part.size for part in memory.training_peak(TINY, replace(training, sharding="zero3"))}
    assert parts["gathered weights"] == 2 * 2 * 1220


def test_generation_by_hand():
    training = Training(1, "none", prompt_tokens=5, completion_tokens=7)
    assert memory.generation_peak(TINY, training) == []
    parts = memory.generation_peak(TINY, replace(training, generated=6))
    assert [part.size for part in parts] == [2 * 72 * (2 * 2 * 1 * 5)]
    parts = memory.generation_peak(TINY, replace(training, generated=6, sharding="zero3"))
    assert parts[1].size == 2 * TINY.parameters


def test_the_larger_peak_counts():
    a, b = memory.Part("a", 10, ""), memory.Part("b", 3, "")
    assert memory.total([a], [b], []) == 13 + memory.OVERHEAD
    assert memory.total([a], [b], [b, b]) == 16 + memory.OVERHEAD


def test_checkpoint_size():
    assert memory.checkpoint_size(1000, Training(4, "zero3")) == 14_000
    assert memory.checkpoint_size(1000, Training(4, "zero3"), weights_only=True) == 2_000
    assert memory.checkpoint_size(1000, Training(4, "ddp")) == 6_000
    assert memory.checkpoint_size(1000, Training(4, "fsdp")) == 12_000
    assert memory.checkpoint_size(1000, Training(4, "zero2", lora=10)) == 140


def test_memory_estimate_of_a_recipe(diagnose):
    def first(**changes):
        found = [one.found for one in diagnose(**changes) if one.check.startswith("memory")]
        return found[0] if found else None

    assert "1,543,714,304 parameters by its name; ddp, 2 processes" in first()
    assert "beside vLLM's 30%" in first(use_vllm=True)
    assert "without activations" in first(model_name_or_path="some/model-7B")
    assert "unknown" in first(model_name_or_path="some/model")
    assert first(use_cpu=True, bf16=False) is None
    assert float(first(beta=0.1).split()[0]) > float(first().split()[0])
    assert float(first(use_vllm=True).split()[0]) < float(first(steps_per_generation=64).split()[0])


def test_number_of_checkpoints(diagnose, tmp_path):
    from dara_trl.doctor.recipe import number_of_checkpoints

    def count(**changes):
        path = tmp_path / "r.yaml"
        path.write_text(yaml.safe_dump({**SOUND, **changes}))
        return number_of_checkpoints(read_recipe(path, 2)[0].args)

    assert count() == 2
    assert count(save_steps=30) == 4
    assert count(save_steps=0.1) == 10
    assert count(save_steps=30, save_total_limit=2) == 2
    assert count(save_strategy="no") == 0
    assert count(max_steps=-1) is None
    assert count(max_steps=-1, save_total_limit=3) == 3


def test_switches_are_read_as_trl_reads_them():
    assert Recipe({}).truth("bf16")
    assert not Recipe({"fp16": True}).truth("bf16")
    assert not Recipe({"bf16": "false"}).truth("bf16")
    assert Recipe({"use_vllm": "true"}).truth("use_vllm")
    assert Recipe({}, model=ModelConfig()).report_to == []


# docs/scaling.md


def rows_of(heading):
    text = (ROOT / "docs" / "scaling.md").read_text().split(f"\n{heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


SIZES = rows_of("## Sizes")[2:]


@pytest.mark.parametrize("row", SIZES, ids=lambda row: f"{row[2]}, {row[3]}")
def test_sizes_in_the_docs_are_the_doctor_s(row, monkeypatch):
    import trl.trainer.utils

    monkeypatch.setattr(trl.trainer.utils, "add_fused_lm_head", None, raising=False)  # as TRL 1.16
    model, gpus, recipe, config, processes, estimate, meant_for = row
    path = None if config == "-" else ROOT / "accelerate_configs" / config
    findings = examine(ROOT / "examples" / "configs" / recipe, path, int(processes), recipe_only=True)
    assert "error" not in levels(findings)
    found = next(one.found for one in findings if one.check == "memory estimate")
    assert found.startswith(f"{estimate} GiB on each GPU")
    assert float(estimate) * GIB < float(meant_for.split()[0]) * 1e9
    assert int(re.search(r"\+ (\d+)", gpus)[1]) == int(processes)
    given = yaml.safe_load((ROOT / "examples" / "configs" / recipe).read_text())
    assert given["model_name_or_path"].split("/")[1].removesuffix("-Instruct") == model.split(",")[0]


def test_every_gpu_recipe_is_in_the_docs():
    assert {row[2] for row in SIZES} == {path.name for path in RECIPES} - {"toolrl_cpu.yaml", "math_cpu.yaml"}


def test_bytes_gathered_in_the_docs():
    rows = [row for row in rows_of("## What is gathered") if row[0].replace(",", "").isdigit()]
    assert [row[0] for row in rows] == ["64", "128", "256", "512", "1,024"]
    for row in rows:
        processes, rollouts = (int(cell.replace(",", "")) for cell in row[:2])
        assert rollouts == 32 * processes
        sizes = [4 * rollouts * 2 / 2**10, (17 * rollouts + 8 * processes) / 2**10]
        sizes += [12_000 * rollouts / 2**20, 8 * rollouts / 2**10]
        assert [cell.split()[0] for cell in row[2:]] == [f"{size:.0f}" for size in sizes]


def test_commands_in_the_docs_are_those_of_the_recipes():
    def joined(text):
        return re.sub(r" +", " ", re.sub(r"\\\n\s*", " ", text))

    docs = joined((ROOT / "docs" / "scaling.md").read_text())
    for path in RECIPES:
        header = "\n".join(line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#"))
        commands = re.findall(r"^(?:CUDA|VLLM|accelerate|sbatch).*", joined(header), re.MULTILINE)
        assert commands
        if path.stem not in ("toolrl_cpu", "math_cpu", "toolrl_qwen2.5_1.5b", "math_r1_1.5b", "math_qwen3_4b"):
            # What the script does by itself is in the 14B recipe alone.
            wanted = [one for one in commands if path.stem != "toolrl_qwen2.5_14b" or one.startswith("sbatch")]
            assert wanted
            assert [one for one in wanted if one not in docs] == []


def test_serve_command_is_the_docs_one():
    docs = re.sub(r"\s*\\\n\s*", " ", (ROOT / "docs" / "scaling.md").read_text())
    command = vllm_server.serve_command("Qwen/Qwen2.5-3B-Instruct", 8000)
    command = command.replace("...", "0,1").replace("Instruct", "Instruct --tensor-parallel-size 2")
    assert command in docs


def test_slurm_script(tmp_path):
    """With stand-ins for Slurm's commands, which write down what they are given."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    stand_ins = {
        "scontrol": "printf 'n1\\nn2\\nn3\\n'",
        "curl": "exit 0",
        "srun": 'printf "%s\\n" "srun $*" >> "$CALLS"; while [[ $1 == --* ]]; do shift; done; exec "$@"',
        "vllm": 'printf "%s\\n" "vllm $*" >> "$CALLS"; exec sleep 30',
        "python": 'printf "%s\\n" "python $*" >> "$CALLS"; exit "$DOCTOR"',
        "accelerate": 'printf "%s\\n" "accelerate $*" >> "$CALLS"',
    }
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    recipe = ROOT / "examples" / "configs" / "toolrl_qwen2.5_14b.yaml"
    command = ["bash", str(ROOT / "examples" / "slurm" / "train.sbatch"), str(recipe), "zero3_2nodes.yaml"]
    environment = {
        "PATH": f"{tmp_path}:/usr/local/bin:/usr/bin:/bin",
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURM_JOB_ID": "7",
    }
    environment |= {"SLURM_GPUS_ON_NODE": "8", "SLURM_PROCID": "1", "TENSOR_PARALLEL": "4"}
    for doctor in ("0", "1"):
        calls = tmp_path / f"calls{doctor}"
        done = subprocess.run(
            [*command, "--dataset", "my data.parquet", "--rewards", "format", "correctness", "--max_steps", "-1"],
            cwd=tmp_path,
            env={**environment, "CALLS": str(calls), "DOCTOR": doctor},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == int(doctor), done.stderr
        lines = calls.read_text().splitlines()
        assert any(
            line.startswith("srun --nodes=1 --ntasks=1 --nodelist=n1 env VLLM_SERVER_DEV_MODE=1") for line in lines
        )
        checks = "python -m dara_trl doctor runs/slurm-7.yaml --accelerate-config zero3_2nodes.yaml --num-processes 16"
        assert checks in lines
        trains = (
            "accelerate launch --config_file zero3_2nodes.yaml --num_machines 2 --num_processes 16 --machine_rank 1 "
            "--main_process_ip n2 --main_process_port 29500 examples/train_toolrl.py --config runs/slurm-7.yaml"
        )
        assert (trains in lines) == (doctor == "0")
    served = "vllm serve Qwen/Qwen2.5-14B-Instruct --tensor-parallel-size 4 --data-parallel-size 2 "
    assert served + '--weight-transfer-config {"backend":"nccl"} --logprobs-mode' in calls.read_text()
    resolved = yaml.safe_load((tmp_path / "runs" / "slurm-7.yaml").read_text())
    assert resolved["vllm_server_base_url"] == "http://n1:8000"
    assert resolved["dataset"] == "my data.parquet"
    assert (resolved["rewards"], resolved["max_steps"]) == (["format", "correctness"], -1)
