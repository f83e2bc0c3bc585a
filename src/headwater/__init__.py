"""Headwater: a database turned inside out, in Python, on Spark."""

from headwater import errors, frames
from headwater.app import App
from headwater.capture.spec import CaptureSettings
from headwater.forgetting import forget
from headwater.log import Log, Position, Producer, Settings, Topic
from headwater.log import open_log as open
from headwater.process.changes import Change
from headwater.serve.view import View

__all__ = [
    "App",
    "CaptureSettings",
    "Change",
    "Log",
    "Position",
    "Producer",
    "Settings",
    "Topic",
    "View",
    "errors",
    "forget",
    "frames",
    "open",
]
