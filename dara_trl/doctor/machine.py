"""What this machine has: packages, GPUs, a login to W&B, room on the disk, room on each GPU."""

import importlib.metadata
import netrc
import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from .findings import Finding
from .launch import Launch
from .memory import GIB
from .recipe import Recipe


# pyproject.toml has the same floors (a test compares them). None: any newer version.
SUPPORTED = {
    "torch": ("2.6", None),
    "trl": ("1.6", "1.16"),
    "transformers": ("5.0", None),
    "accelerate": ("1.4", None),
}
# Floors of the optional packages, and the extra of dara-trl that brings each; bitsandbytes is in none.
OPTIONAL = {
    "deepspeed": ("0.17", "deepspeed"),
    "peft": ("0.17", "peft"),
    "vllm": ("0.22", "vllm"),
    "wandb": ("0.19", "wandb"),
    "trackio": ("0.5", "trackio"),
    "bitsandbytes": ("0", None),
}
VLLM_RANGE = ">=0.22.0,<=0.31.0"  # TRL 1.16's, where the installed TRL declares none

InstalledVersion = Callable[[str], str | None]


@dataclass(frozen=True)
class Gpu:
    """One visible CUDA device; memory in bytes."""

    name: str
    memory: int
    bf16: bool


def installed_version(package: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def visible_gpus() -> list[Gpu]:
    """The CUDA devices that this process sees."""
    import torch

    if not torch.cuda.is_available():
        return []
    devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [Gpu(device.name, device.total_memory, device.major >= 8) for device in devices]


def needed_packages(recipe: Recipe | None, launch: Launch) -> list[str]:
    """The optional packages that the recipe or the accelerate configuration uses."""
    needed = {"deepspeed": launch.sharding.startswith("zero")}
    if recipe is not None:
        given = recipe.given
        needed |= {
            "deepspeed": needed["deepspeed"] or bool(given.get("deepspeed")),
            "peft": recipe.truth("use_peft"),
            "vllm": recipe.truth("use_vllm"),
            "wandb": "wandb" in recipe.report_to,
            "trackio": "trackio" in recipe.report_to,
            "bitsandbytes": recipe.truth("load_in_4bit") or recipe.truth("load_in_8bit"),
        }
    return [name for name, is_needed in needed.items() if is_needed]


def check_versions(
    needed: Sequence[str], version_of: InstalledVersion = installed_version, vllm_range: str | None = None
) -> list[Finding]:
    """Python, the packages that dara-trl stands on, and the `needed` ones among the optional."""
    python = platform.python_version()
    findings = [Finding("ok", "python", python)]
    for name, (floor, newest) in SUPPORTED.items():
        advice = f"pip install '{name}{f'>={floor}' if newest is None else f'=={newest}.*'}'"
        findings.append(_version_finding(name, version_of(name), floor, newest, advice))
    for name in needed:
        floor, extra = OPTIONAL[name]
        advice = f"pip install {name}" if extra is None else f"pip install 'dara-trl[{extra}]'"
        finding = _version_finding(name, version_of(name), floor, None, advice)
        if name == "vllm" and finding.level == "ok":
            finding = _vllm_finding(finding.found, vllm_range or trl_vllm_range())
        findings.append(finding)
    return findings


def _version_finding(name: str, found: str | None, floor: str, newest: str | None, advice: str) -> Finding:
    if found is None:
        return Finding("error", name, "not installed", advice)
    try:
        version = Version(found)
    except InvalidVersion:
        return Finding("warning", name, f"{found}, which is no version that can be compared", advice)
    if version < Version(floor):
        return Finding("error", name, f"{found}, but at least {floor} is needed", advice)
    if newest is not None and version.release[:2] > Version(newest).release:
        advice = f"if anything is odd, try what was tested: {advice}"
        return Finding("warning", name, f"{found} is not tested; the newest that is, is {newest}", advice)
    return Finding("ok", name, found)


def trl_vllm_range() -> str:
    """The vLLM versions that the installed TRL supports, as its package declares them."""
    try:
        declared = [Requirement(text) for text in importlib.metadata.requires("trl") or []]
    except (importlib.metadata.PackageNotFoundError, InvalidRequirement):
        declared = []
    ranges = [one for one in declared if one.name == "vllm" and one.marker and one.marker.evaluate({"extra": "vllm"})]
    return str(ranges[0].specifier) if ranges and ranges[0].specifier else VLLM_RANGE


def _vllm_finding(found: str, allowed: str) -> Finding:
    base = Version(found).base_version  # without +cu129, which orders above the plain release
    if Requirement(f"vllm{allowed}").specifier.contains(base):
        return Finding("ok", "vllm", f"{found}, in TRL's range {allowed}")
    return Finding(
        "error", "vllm", f"{found}, but the installed TRL supports {allowed}", f"pip install 'vllm{allowed}'"
    )


def vllm_has_scale_out(version: str | None) -> bool:
    """Whether the server takes `--enable-scale-out`; without vLLM here it is taken to be the newest in TRL's range."""
    try:
        return version is None or Version(version) >= Version("0.30")
    except InvalidVersion:
        return False


def check_gpus(
    gpus: Sequence[Gpu], recipe: Recipe | None, launch: Launch, server_here: bool, visible: str | None
) -> list[Finding]:
    """The GPUs against the recipe and the process count.

    Args:
        gpus: what this process sees.
        recipe: the recipe, if any.
        launch: how it is started.
        server_here: whether the recipe's vLLM server is on this machine.
        visible: `CUDA_VISIBLE_DEVICES`, which may keep the server's GPUs from sight.
    """
    names = ", ".join(dict.fromkeys(f"{gpu.name} with {gpu.memory / GIB:.0f} GiB" for gpu in gpus))
    found = f"{len(gpus)} x {names}" if gpus else "no GPU on this machine"
    on_cpu = launch.use_cpu or (recipe is not None and recipe.truth("use_cpu"))
    if recipe is None or on_cpu:
        return [Finding("ok", "GPUs", found + ("; the recipe trains on the CPU" if on_cpu else ""))]
    if not gpus:
        advice = "run this on the machine that trains (--recipe-only checks the files alone); for the CPU set "
        return [Finding("error", "GPUs", f"{found}, but the recipe needs them", advice + "use_cpu: true, bf16: false")]
    if launch.local_processes > len(gpus):
        advice = f"--num_processes {len(gpus) * launch.machines}, or let it see more (CUDA_VISIBLE_DEVICES)"
        wanted = f"{launch.local_processes} processes on this machine need one each"
        return [Finding("error", "GPUs", f"{found}, but {wanted}", advice)]
    findings = [Finding("ok", "GPUs", found)]
    if len({gpu.memory for gpu in gpus}) > 1:
        advice = "choose equal ones with CUDA_VISIBLE_DEVICES, or size the recipe for the smallest"
        findings.append(Finding("warning", "GPUs", "they differ in memory", advice))
    if recipe.truth("bf16") and not all(gpu.bf16 for gpu in gpus):
        advice = "set bf16: false, fp16: true, and the same in the accelerate configuration (mixed_precision: fp16)"
        findings.append(Finding("error", "bf16", "the recipe trains in bf16, which not every GPU here has", advice))
    if server_here:
        left = len(gpus) - launch.local_processes
        if left > 0 or visible is not None:
            text = f"{left} left of those in sight" if left > 0 else f"it must have others than {visible}"
            findings.append(Finding("ok", "GPUs of the vLLM server", text))
        else:
            advice = "fewer --num_processes, the server on another machine, or vllm_mode: colocate"
            text = "training takes all GPUs of this machine, and the server needs its own"
            findings.append(Finding("error", "GPUs of the vLLM server", text, advice))
    return findings


def check_gpu_memory(needed: int, gpus: Sequence[Gpu], vllm_share: float, vllm_weights: int) -> list[Finding]:
    """Whether the estimate fits the smallest GPU, beside the share that colocated vLLM reserves.

    Args:
        needed: bytes that training is estimated to take on a GPU.
        gpus: the GPUs.
        vllm_share: `vllm_gpu_memory_utilization` if vLLM lies on the same GPU all the time, else 0.
        vllm_weights: bytes of its weights on one GPU, which that share must hold.
    """
    if not gpus:
        return []
    memory = min(gpu.memory for gpu in gpus)
    reserved = round(vllm_share * memory)
    findings = []
    if vllm_share and vllm_weights > 0.9 * reserved:
        found = f"vLLM's share of {reserved / GIB:.1f} GiB hardly holds its weights, {vllm_weights / GIB:.1f} GiB"
        advice = "raise vllm_gpu_memory_utilization or vllm_tensor_parallel_size, or use a server"
        findings.append(Finding("warning", "GPU memory for vLLM", found, advice))
    found = f"about {(needed + reserved) / GIB:.1f} GiB needed" + (
        f", {reserved / GIB:.1f} of it vLLM's" * (reserved > 0)
    )
    found += f"; the GPU has {memory / GIB:.1f} GiB"
    if needed + reserved > memory:
        advice = (
            "halve per_device_train_batch_size and double steps_per_generation and gradient_accumulation_steps, "
            "shard more (zero2, zero3, fsdp2, more GPUs), or use LoRA"
        )
        return [*findings, Finding("warning", "GPU memory", found, advice)]
    return [*findings, Finding("ok", "GPU memory", found)]


def check_wandb(environment: Mapping[str, str], home: Path, folder: Path) -> Finding:
    """Whether W&B has a key, or is set to work offline. Reads files and variables only."""
    mode = environment.get("WANDB_MODE", "")
    if mode in ("offline", "disabled", "dryrun") or environment.get("WANDB_DISABLED", "").lower() == "true":
        return Finding("ok", "W&B", f"WANDB_MODE={mode}" if mode else "WANDB_DISABLED")
    settings = folder / environment.get("WANDB_DIR", "") / "wandb" / "settings"
    if "mode = offline" in _text(settings):
        return Finding("ok", "W&B", "set to offline in this folder")
    if environment.get("WANDB_API_KEY"):
        return Finding("ok", "W&B", "WANDB_API_KEY is set; whether it is valid is seen when training starts")
    host = urlsplit(environment.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    path = Path(environment.get("NETRC", home / ".netrc"))
    try:
        has_key = netrc.netrc(path).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        has_key = False
    if has_key:
        return Finding("ok", "W&B", f"logged in to {host}")
    advice = "wandb login, or WANDB_MODE=offline (and `wandb sync` later), or report_to: none"
    return Finding(
        "error", "W&B", "report_to is wandb, but there is no key: it would ask, or fail in a batch job", advice
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:10_000]
    except OSError:
        return ""


def check_disk(folder: Path, one: int | None, checkpoints: int | None) -> Finding:
    """Free space at `folder`, which need not exist, against `checkpoints` of `one` checkpoint's bytes.

    Either may be None if it is unknown.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 (resolve() would follow links that may not exist yet)
    existing = next(parent for parent in [folder, *folder.parents] if parent.exists())
    try:
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return Finding("warning", "disk", f"{existing}: {error}", "choose an output_dir that can be read")
    if not os.access(existing, os.W_OK):
        return Finding("error", "disk", f"{existing} cannot be written", "choose another output_dir")
    if one is None or checkpoints is None:
        missing = "the model's size" if one is None else "the number of steps"
        return Finding("ok", "disk", f"{free / GIB:.0f} GiB free; {missing} is unknown, so the need is too")
    needed = one * checkpoints
    found = f"{checkpoints} x {_size(one)} of checkpoints, {free / GIB:.0f} GiB free"
    advice = "set save_total_limit, save_only_model: true (no resuming then), or another output_dir"
    if checkpoints and one > free:
        return Finding("error", "disk", found, advice)
    if needed > free:
        return Finding("warning", "disk", found, advice)
    return Finding("ok", "disk", found)


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / 2**20:.1f} MiB"
