"""Where views are served from: one file a kind of store, all behind `serve/store.py`."""
