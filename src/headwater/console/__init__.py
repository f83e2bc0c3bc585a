"""Pages for people, over what is served."""

from headwater.console.pages import mount_pages

__all__ = ["mount_pages"]
