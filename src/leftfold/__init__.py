"""Leftfold: a durable job engine. A job's state is the left fold of its events."""

from importlib.metadata import version

__version__ = version("leftfold")
