"""The systems that are measured: one file each. `bench.system` says what it holds."""
