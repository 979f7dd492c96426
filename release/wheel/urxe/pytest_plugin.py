"""Tests of programs that use RDMA, on urxe.

- The fixture ``urxe`` starts programs on it. What they sent and received is captured, and a test that fails says where, with the last
  packets in words.
- ``@pytest.mark.urxe(faults="drop=2%,seed=7")`` runs the test itself in a process on urxe: for tests that use pyverbs, or a module that
  is linked to libibverbs.
- ``--urxe-faults``, ``--urxe-strict`` and ``--urxe-device`` are for all tests of a run.
"""

import os
import subprocess
import sys

import pytest

import urxe as _urxe

# Says to a process that a test was started in that it is that process.
_INSIDE = "URXE_PYTEST_INSIDE"
_PACKETS_SHOWN = 20


def pytest_addoption(parser):
    group = parser.getgroup("urxe", "RDMA programs on urxe")
    group.addoption("--urxe-faults", metavar="SPEC", help="faults for all programs: drop=2%%,seed=7 (urxe run --faults)")
    group.addoption("--urxe-strict", action="store_true", help="report misuse that works by luck (urxe run --strict)")
    group.addoption("--urxe-device", action="append", metavar="DEVICE", help="an interface or address (urxe run --device)")


def pytest_configure(config):
    config.addinivalue_line("markers", "urxe(**options): run this test in a process of its own on urxe; the options are those of `urxe run`")


class Urxe:
    """Starts programs on urxe; options of ``urxe run`` come as keywords, beside those of ``subprocess``."""

    def __init__(self, folder, defaults):
        self.captures = folder
        self._defaults = {"pcap": str(folder / "urxe-%p.pcapng"), **defaults}
        self._started = []

    def run(self, program, **keywords):
        """As ``urxe.run``."""
        return _urxe.run(program, **{**self._defaults, **keywords})

    def popen(self, program, **keywords):
        """As ``urxe.popen``. What still runs when the test is over is ended."""
        process = _urxe.popen(program, **{**self._defaults, **keywords})
        self._started.append(process)
        return process

    def env(self, base=None, **options):
        """As ``urxe.env``."""
        return _urxe.env(base, **{**self._defaults, **options})

    def end(self):
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def report(self):
        """What was captured, in words."""
        for file in sorted(self.captures.glob("urxe-*.pcapng")):
            yield f"{file}"
            decoded = subprocess.run([_urxe.command(), "decode", str(file)], capture_output=True, text=True)
            lines = (decoded.stdout + decoded.stderr).splitlines()
            if len(lines) > _PACKETS_SHOWN:
                yield f"  ({len(lines) - _PACKETS_SHOWN} lines before)"
            yield from (f"  {line}" for line in lines[-_PACKETS_SHOWN:])


def _defaults(config):
    chosen = {"faults": config.getoption("urxe_faults"), "strict": config.getoption("urxe_strict"), "device": config.getoption("urxe_device")}
    return {name: value for name, value in chosen.items() if value}


@pytest.fixture
def urxe(request, tmp_path):
    """Starts programs on urxe, and keeps captures of what they sent and received."""
    runner = Urxe(tmp_path, _defaults(request.config))
    request.node.stash[_RUNNER] = runner
    yield runner
    runner.end()


_RUNNER = pytest.StashKey()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """A test with the mark runs in a process of its own: the libraries of this one are loaded already."""
    mark = item.get_closest_marker("urxe")
    if mark is None or os.environ.get(_INSIDE):
        return None
    if mark.args:
        raise pytest.UsageError(f"{item.nodeid}: urxe() takes options by name, as in urxe(faults='drop=2%')")
    item.runtest = lambda: _run_apart(item, mark.kwargs)
    # Fixtures are made in the process that the test runs in.
    item.fixturenames[:] = []
    if hasattr(item, "_request"):
        item.setup = lambda: None
    return None


def _run_apart(item, options):
    folder = item.config._tmp_path_factory.mktemp("urxe")
    runner = Urxe(folder, {**_defaults(item.config), **options})
    item.stash[_RUNNER] = runner
    inner = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "--rootdir", str(item.config.rootpath), item.nodeid]
    ran = runner.run(inner, capture_output=True, text=True, cwd=str(item.config.rootpath), env={**os.environ, _INSIDE: "1"})
    if ran.returncode == 0:
        if " skipped" in ran.stdout.splitlines()[-1] and " passed" not in ran.stdout.splitlines()[-1]:
            pytest.skip("skipped in its own process")
        return
    pytest.fail(f"in a process of its own (exit status {ran.returncode}):\n{ran.stdout}{ran.stderr}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    runner = item.stash.get(_RUNNER, None)
    if runner is not None and call.when == "call" and report.failed:
        report.sections.append(("urxe: captures (urxe decode FILE)", "\n".join(runner.report()) or "nothing was sent or received"))
    return report
