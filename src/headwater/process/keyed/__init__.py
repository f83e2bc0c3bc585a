"""Operators `(state, delta) -> delta` over Arrow. Pure, but for `runner`: the only file that knows transformWithState."""
