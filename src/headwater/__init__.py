"""Headwater: a database turned inside out, in Python, on Spark."""

from headwater import errors, frames
from headwater.app import App
from headwater.capture.feeds.spec import StatsdSettings, TailSettings
from headwater.capture.spec import CaptureSettings
from headwater.client import AsyncClient, Client
from headwater.decide import Decided, Decider, refuse
from headwater.forgetting import forget
from headwater.log import Log, Position, Producer, Settings, Topic
from headwater.log import open_log as open
from headwater.process.changes import Change
from headwater.serve import stores
from headwater.serve.view import View

__all__ = [
    "App",
    "AsyncClient",
    "CaptureSettings",
    "Change",
    "Client",
    "Decided",
    "Decider",
    "Log",
    "Position",
    "Producer",
    "Settings",
    "StatsdSettings",
    "TailSettings",
    "Topic",
    "View",
    "errors",
    "forget",
    "frames",
    "open",
    "refuse",
    "stores",
]
