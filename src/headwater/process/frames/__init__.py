"""Frames: what a user's function from DataFrames to a DataFrame calls, thin over Spark."""
