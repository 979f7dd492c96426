"""Puts what was built for one system into the wheel: the files under `URXE_STAGE`, with the tag that `URXE_PLATFORM` says."""

import os
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        if version == "editable":
            return
        stage = Path(os.environ["URXE_STAGE"])
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['URXE_PLATFORM']}"
        build_data["shared_scripts"] = {str(stage / "bin/urxe"): "urxe"}
        # A wheel holds no links: the command makes those that the library's other names need.
        files = ("libibverbs.so.1", "liburxe_preload.so", "liburxe_simulated.so")
        build_data["shared_data"] = {str(stage / "lib/urxe" / name): f"lib/urxe/{name}" for name in files}
