"""Decides when a known page is worth fetching again: the refresh model and its estimators.

`README.md` lists the modules. All of them except params.py, recalibration.py and columns.py are in Cython's
pure-Python mode. The `.pxd` file beside a module declares its C types (`crawler/README.md`, "How to add").
"""
