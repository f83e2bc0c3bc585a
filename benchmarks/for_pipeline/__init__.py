"""The parts of `benchmarks/pipeline.py`: records, child processes, ours, the peers, and the live measurements."""
