"""The storage engines that can be tested on this machine, because their packages are installed."""

import importlib.util

import pytest

ENGINES = [
    pytest.param(
        engine,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(package) is None, reason=f"{package} is not installed"
        ),
    )
    for engine, package in (("leveldb", "plyvel"), ("rocksdict", "rocksdict"))
]
TABLES = {"leveldb": "*.ldb", "rocksdict": "*.sst"}
