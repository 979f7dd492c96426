"""A sweep of simulations over a Ray cluster: ``python -m urxe.ray_sweep FILE.toml --seeds 1000``.

Each shard of ``urxe sim sweep`` is a task. Ray runs a task again, on whatever node has room, when its worker or node dies. A task
returns its results by value, so nodes need no common file system: the scenario goes to them with the task. The outcome is
that of ``urxe sim sweep`` on one machine, byte by byte. Nodes need this package and Ray.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile

import ray

from urxe import UrxeError, command

__all__ = ["Killed", "shards", "sweep"]

# Shards a processor of the cluster: what a lost worker costs is a part of the whole, and slow nodes take fewer.
SHARDS_PER_CPU = 4
PR_SET_PDEATHSIG = 1


class Killed(Exception):
    """A signal ended the command, not its worker: want of memory, for example. Ray runs the shard again."""


def _dies_with_worker():
    """A worker that is killed cannot end its command; the kernel does."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _place(name, folder):
    """Where a file lies below a folder, as it does below the current one on the machine that asked."""
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def _run_shard(shard, files, name, options):
    """One shard, on whatever node: its results (lines of JSON) and the node's name. ``files`` are contents by name."""
    with tempfile.TemporaryDirectory(prefix="urxe-shard-") as folder:
        for file, content in files.items():
            with open(_place(file, folder), "wb") as out:
                out.write(content)
        results = os.path.join(folder, "shard.jsonl")
        # One run at a time: a task has one processor.
        asks = [command(), "sim", "sweep", name, "--jobs=1", f"--shard={shard}", f"--results={results}", *options]
        ran = subprocess.run(asks, cwd=folder, capture_output=True, text=True, preexec_fn=_dies_with_worker)
        if ran.returncode < 0:
            raise Killed(f"shard {shard}: urxe was ended by {signal.Signals(-ran.returncode).name}")
        # With runs that failed the command fails too; their results are there all the same.
        if not os.path.exists(results):
            raise UrxeError(f"shard {shard}: {ran.stderr.strip()}")
        with open(results, "rb") as lines:
            return lines.read(), ray.get_runtime_context().get_node_id()


def _read(names):
    """Contents by name. A name leads below the current folder, because there it leads on the nodes."""
    contents = {}
    for name in names:
        if os.path.isabs(name) or os.path.normpath(name).startswith(".."):
            raise UrxeError(f"{name} is not below the current folder, by which nodes name it: change to a folder above it")
        try:
            with open(name, "rb") as file:
                contents[name] = file.read()
        except OSError as error:
            raise UrxeError(f"cannot read {name}: {error.strerror}") from error
    return contents


def shards(file, options=(), parts=None, beside=(), retries=3):
    """Runs the sweep of the scenario ``file``, and yields each shard's results and its node as it ends.

    ``options`` are those of ``urxe sim sweep`` (``["--seeds=1000"]``), ``parts`` is the number of shards (by default four for each
    processor of the cluster), ``beside`` names files that the scenario reads. A shard is run again ``retries`` times (-1: without
    end) when its worker, node or command is killed; then Ray's error, or :class:`Killed`, is raised. What the command refuses is a
    ``UrxeError`` in its words. Ray is initialized by the caller, or here as ``ray.init()`` does.
    """
    files = ray.put(_read([file, *beside]))
    parts = parts or SHARDS_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
    task = ray.remote(num_cpus=1, max_retries=retries, retry_exceptions=[Killed])(_run_shard)
    waiting = [task.remote(f"{k}/{parts}", files, file, list(options)) for k in range(1, parts + 1)]
    while waiting:
        ended, waiting = ray.wait(waiting)
        try:
            yield ray.get(ended[0])
        except ray.exceptions.RayTaskError as error:
            # The exception of the task itself, without the node's stack.
            raise error.cause if isinstance(error.cause, (UrxeError, Killed)) else error


def sweep(file, options=(), results=None, **keywords):
    """Runs the sweep and puts its shards together: the exit status of ``urxe sim merge``, which prints the outcome (1 if runs
    failed). ``results`` names the file for all results; the other arguments are those of :func:`shards`.
    """
    nodes = {}
    with tempfile.TemporaryDirectory(prefix="urxe-sweep-") as folder:
        parts = []
        for lines, node in shards(file, options, **keywords):
            parts.append(os.path.join(folder, f"{len(parts)}.jsonl"))
            with open(parts[-1], "wb") as out:
                out.write(lines)
            nodes[node] = nodes.get(node, 0) + 1
        told = " and ".join(str(count) for count in sorted(nodes.values(), reverse=True))
        print(f"{len(parts)} shards: {told} on {len(nodes)} nodes", file=sys.stderr)
        whole = [f"--results={results}"] if results else []
        return subprocess.run([command(), "sim", "merge", *parts, *whole]).returncode


def main():
    parser = argparse.ArgumentParser(prog="python -m urxe.ray_sweep", description=__doc__.split("\n")[0],
                                     epilog="Other options are those of urxe sim sweep: --seeds, --first, --set, --swarm.")
    parser.add_argument("file", metavar="FILE.toml", help="the scenario, below the current folder")
    parser.add_argument("--shards", type=int, metavar="N", help=f"parts [default: {SHARDS_PER_CPU} a processor of the cluster]")
    parser.add_argument("--results", metavar="FILE.jsonl", help="write what each run came to")
    parser.add_argument("--beside", metavar="FILE", action="append", default=[], help="a file that the scenario reads; can be repeated")
    parser.add_argument("--retries", type=int, default=3, help="how often a shard is run again that was killed, -1 for always [default: 3]")
    parser.add_argument("--address", help="the cluster [default: RAY_ADDRESS, or that of this machine, or one of its own]")
    asked, options = parser.parse_known_args()
    if asked.shards is not None and asked.shards < 1:
        parser.error("--shards: at least 1")
    try:
        sys.stdout = sys.stderr  # What Ray tells of lost workers; the outcome is printed by the command.
        ray.init(address=asked.address, log_to_driver=False)
        return sweep(asked.file, options, asked.results, parts=asked.shards, beside=asked.beside, retries=asked.retries)
    except (UrxeError, Killed, ConnectionError, ray.exceptions.RayError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
