"""What a process runs on and with, read from files that a test writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuprof._session.environment import environment, git_commit

NVIDIA = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def repository(directory: Path) -> str:
    """A repository with one commit. Returns the commit."""
    directory.mkdir()
    git(directory, "init", "-q", "-b", "main")
    git(directory, "commit", "-q", "--allow-empty", "-m", "first")
    return git(directory, "rev-parse", "HEAD")


def test_nvidia_gpus_and_driver_are_read_from_the_kernel(tmp_path: Path) -> None:
    """One name for each GPU, in the order of their addresses."""
    write(tmp_path / "proc/driver/nvidia/version", NVIDIA)
    for address, name in (("0000:02:00.0", "NVIDIA L4"), ("0000:01:00.0", "NVIDIA H100")):
        path = tmp_path / "proc/driver/nvidia/gpus" / address / "information"
        write(path, f"Model: \t\t {name}\nIRQ:   \t\t 7\n")
    found = environment(str(tmp_path))
    assert ("535.104.05", ["NVIDIA H100", "NVIDIA L4"]) == (found["driver"], found["gpus"])


def test_amd_gpus_and_driver_are_read_from_the_kernel(tmp_path: Path) -> None:
    """A card without a name is no GPU."""
    write(tmp_path / "sys/module/amdgpu/version", "6.3.6\n")
    write(tmp_path / "sys/class/drm/card1/device/product_name", "AMD Instinct MI300X\n")
    write(tmp_path / "sys/class/drm/card0/device/product_name", "\n")
    found = environment(str(tmp_path))
    assert ("6.3.6", ["AMD Instinct MI300X"]) == (found["driver"], found["gpus"])


def test_a_machine_without_a_gpu_has_no_driver(tmp_path: Path) -> None:
    """Nothing is guessed."""
    found = environment(str(tmp_path))
    assert (None, []) == (found["driver"], found["gpus"])


def test_the_commit_is_found_from_a_folder_below(tmp_path: Path) -> None:
    """As git finds it."""
    commit = repository(tmp_path / "own")
    (tmp_path / "own" / "src").mkdir()
    assert commit == git_commit(str(tmp_path / "own" / "src"))


def test_the_commit_of_packed_references_is_found(tmp_path: Path) -> None:
    """Git packs them from time to time."""
    commit = repository(tmp_path / "own")
    git(tmp_path / "own", "pack-refs", "--all")
    assert commit == git_commit(str(tmp_path / "own"))


def test_the_commit_of_a_work_tree_is_its_own(tmp_path: Path) -> None:
    """Its branch lies in the repository that it belongs to."""
    repository(tmp_path / "own")
    git(tmp_path / "own", "worktree", "add", "-q", "-b", "other", "../tree")
    git(tmp_path / "tree", "commit", "-q", "--allow-empty", "-m", "second")
    assert git(tmp_path / "tree", "rev-parse", "HEAD") == git_commit(str(tmp_path / "tree"))


def test_a_detached_head_is_a_commit(tmp_path: Path) -> None:
    """As CI checks out."""
    commit = repository(tmp_path / "own")
    git(tmp_path / "own", "checkout", "-q", "--detach")
    assert commit == git_commit(str(tmp_path / "own"))


def test_a_damaged_repository_has_no_commit(tmp_path: Path) -> None:
    """A head that names nothing is no fault of the job."""
    write(tmp_path / ".git/HEAD", "ref: refs/heads/none\n")
    assert git_commit(str(tmp_path)) is None
