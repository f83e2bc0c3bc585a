"""Feeds: lines that arrive by themselves, over UDP or in files that grow, become records."""
