"""The parts of `benchmarks/capture.py`."""
