"""What `nexmark.py` measures with: Flink as the peer."""
