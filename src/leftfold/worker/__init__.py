"""The worker: claims jobs, runs their handlers, and writes what came of them."""

from leftfold.worker.loop import Worker

__all__ = ["Worker"]
