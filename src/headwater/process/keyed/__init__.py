"""Operators `(state, delta) -> delta` over Arrow: pure; `runner` is what Spark calls, `keeping` where state rests."""
