"""Operators `(state, delta) -> delta` over Arrow: pure, but for `runner`, which alone knows transformWithState."""
