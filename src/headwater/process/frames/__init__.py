"""The frames lane."""
