"""RDMA verbs on any network interface, for Python programs.

The options of all functions are those of ``urxe run``, with underscores: ``faults="drop=2%"``, ``strict=True``,
``device=["lo", "eth0"]``. ``urxe run --help`` lists them; what it does not know is an error in its words.
"""

import json
import os
import shutil
import subprocess
import sysconfig

__all__ = ["UrxeError", "command", "env", "popen", "run"]


class UrxeError(Exception):
    """The command is missing, or refused what it was asked for; the text says why."""


def command():
    """Where the command ``urxe`` is: the one of this environment, or else the first of ``PATH``."""
    own = os.path.join(sysconfig.get_path("scripts"), "urxe")
    found = own if os.access(own, os.X_OK) else shutil.which("urxe")
    if found is None:
        raise UrxeError(f"there is no urxe in {os.path.dirname(own)}, nor in PATH")
    return found


def flags(options):
    """Options by name as the command takes them."""
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            yield flag
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            yield f"{flag}={one}"


def env(base=None, **options):
    """An environment in which programs that use libibverbs or librdmacm run on urxe: ``base``, or this process's own, and what
    they need besides. It is good as long as this process lives.
    """
    base = dict(os.environ if base is None else base)
    asked = subprocess.run([command(), "env", "--format=json", *flags(options)], env=base, capture_output=True, text=True)
    if asked.returncode != 0:
        raise UrxeError(asked.stderr.strip())
    return {**base, **json.loads(asked.stdout)}


def _split(keywords):
    """What ``subprocess`` knows, and what ``urxe run`` does."""
    theirs = ("args", "bufsize", "stdin", "stdout", "stderr", "close_fds", "cwd", "env", "text", "encoding", "errors", "start_new_session",
              "pass_fds", "process_group", "input", "capture_output", "timeout", "check")
    return {k: v for k, v in keywords.items() if k in theirs}, {k: v for k, v in keywords.items() if k not in theirs}


def run(program, **keywords):
    """``subprocess.run`` of a program on urxe: its arguments (``timeout``, ``check``, ...) and options of ``urxe run`` beside each other."""
    theirs, options = _split(keywords)
    return subprocess.run([command(), "run", *flags(options), "--", *program], **theirs)


def popen(program, **keywords):
    """``subprocess.Popen`` of a program on urxe, as :func:`run`. The process is the program itself."""
    theirs, options = _split(keywords)
    return subprocess.Popen([command(), "run", *flags(options), "--", *program], **theirs)
