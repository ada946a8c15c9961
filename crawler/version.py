"""The version of the package, apart from the package itself, which leads to everything."""

__version__ = "0.1.0"
