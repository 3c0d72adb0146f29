"""Benchmarks: ratios in one run, never absolute figures of one machine."""
