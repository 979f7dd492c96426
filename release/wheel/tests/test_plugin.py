"""The plugin on a bad network: what passes, what a failure shows, and what the mark does. Run by release/test in the installed package."""

import os
import subprocess
import sys
import time

import pytest

import urxe as package

PLANTED = """
import pytest

def test_planted(urxe):
    server = urxe.popen(["ibv_rc_pingpong", "-g", "0", "-p", "18600", "-n", "50"])
    until_listening(18600)
    assert urxe.run(["ibv_rc_pingpong", "-g", "0", "-p", "18600", "-n", "50", "127.0.0.1"]).returncode == 0
    assert server.wait(30) == 0
    assert False, "the planted bug"

@pytest.mark.urxe(strict=True)
def test_inside():
    import os
    assert os.environ["URXE_STRICT"] == "1" and "libibverbs.so.1" in os.environ["LD_PRELOAD"]

@pytest.mark.urxe
def test_fails_inside(tmp_path):
    assert tmp_path.exists()
    assert 1 + 1 == 3

@pytest.mark.urxe
def test_skips_inside():
    pytest.skip("not today")

@pytest.mark.urxe(nonsense=True)
def test_unknown_option():
    pass

def until_listening(port):
    import time
    line = ":%04X " % port
    while not any(line in text and " 0A " in text for f in ("tcp", "tcp6") for text in open("/proc/net/" + f)):
        time.sleep(0.05)
"""


def until_listening(port):
    line = ":%04X " % port
    while not any(line in text and " 0A " in text for f in ("tcp", "tcp6") for text in open("/proc/net/" + f)):
        time.sleep(0.05)


def test_a_transfer_survives_losses(urxe):
    # A program of which both ends wait for the other before they exit: one that exits takes along what was lost of its last ACK.
    command = ["ib_write_bw", "-x", "0", "-n", "200", "-F", "-p", "18601"]
    server = urxe.popen(command, stdout=subprocess.DEVNULL)
    until_listening(18601)
    client = urxe.run([*command, "127.0.0.1"], capture_output=True, text=True, timeout=60)
    assert client.returncode == 0, client.stdout + client.stderr
    assert server.wait(60) == 0
    assert len(list(urxe.captures.glob("urxe-*.pcapng"))) == 2
    assert any("WRITE" in line for line in urxe.report())


def test_programs_see_the_environment():
    ran = subprocess.run(["ibv_devinfo"], env=package.env(device="lo"), capture_output=True, text=True)
    assert ran.returncode == 0 and "PORT_ACTIVE" in ran.stdout, ran.stdout + ran.stderr


def test_what_the_command_refuses_is_told_in_its_words():
    with pytest.raises(package.UrxeError, match="nonsense"):
        package.env(faults="nonsense=1")


def test_failures_show_what_crossed_the_wire(tmp_path):
    (tmp_path / "test_inner.py").write_text(PLANTED)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    asks = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--urxe-device", "lo", "--rootdir", str(tmp_path), str(tmp_path)]
    ran = subprocess.run(asks, capture_output=True, text=True, env=environment, timeout=120)
    out = ran.stdout
    assert ran.returncode == 1, out + ran.stderr
    assert "1 passed" in out and "3 failed" in out and "1 skipped" in out, out
    assert "the planted bug" in out and "urxe: captures" in out and ".pcapng" in out, out
    assert "assert (1 + 1) == 3" in out or "assert 2 == 3" in out, out
    assert "--nonsense" in out, out
