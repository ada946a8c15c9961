"""Builds the kernels: a command of setuptools (`pyproject.toml`). The crawler itself never imports it."""

from typing import Any

from setuptools.command.build_ext import build_ext

SHARED = "crawler.memoryviews"


class SharedFirst(build_ext):
    """Builds what all kernels share before any of them.

    Kernels are built several at a time. Cython, making the shared module beside another one, may leave half of it
    out, and then no kernel can be imported.
    """

    # setuptools finds the options of pyproject.toml by this name, also when it begins anew
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
