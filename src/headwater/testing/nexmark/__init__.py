"""Nexmark, the online auction by which stream processors are compared: its events, and its 23 queries."""
