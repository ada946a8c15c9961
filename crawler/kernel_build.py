"""Builds the kernels: a setuptools command (see `pyproject.toml`). The crawler itself never imports this module."""

from typing import Any

from setuptools.command.build_ext import build_ext

SHARED = "crawler.memoryviews"


class SharedFirst(build_ext):
    """Builds the module that all kernels share before any of the kernels.

    Kernels are built in parallel. If Cython generates the shared module at the same time as another module, part
    of it may be missing, and then no kernel can be imported.
    """

    # setuptools looks up the options of pyproject.toml by this name, also in a second run
    command_name = "build_ext"
    extensions: list[Any]
    parallel: Any

    def build_extensions(self) -> None:
        extensions, parallel = self.extensions, self.parallel
        for group, at_once in (
            ([each for each in extensions if each.name == SHARED], None),
            ([each for each in extensions if each.name != SHARED], parallel),
        ):
            self.extensions, self.parallel = group, at_once
            super().build_extensions()
        self.extensions, self.parallel = extensions, parallel
