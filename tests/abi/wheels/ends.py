"""What the two sides of a test tell each other: files in a folder, and the bytes that each expects."""

import os
import random
import sys
import time

ROLE, FOLDER = sys.argv[1:3]
BYTES = 8 << 20


def pattern(seed):
    return random.Random(seed).randbytes(BYTES)


def tell(name, data):
    path = os.path.join(FOLDER, name)
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.rename(path + ".new", path)


def hear(name):
    path = os.path.join(FOLDER, name)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as file:
        return file.read()


def check(what, got, seed):
    if bytes(got) != pattern(seed):
        sys.exit(f"{what}: the bytes are not those that were sent")
    print(f"{what}: {BYTES} bytes compared")
