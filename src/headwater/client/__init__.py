"""Headwater over HTTP, with the calls of in-process use: `Client` for plain code, `AsyncClient` for coroutines.

What is asked and how answers are read is written once, as steps that do no input or output (`steps.py`, `topics.py`,
`views.py`, `consuming.py`, `asking.py`); the two clients only carry them out.
"""

from headwater.client.asynchronous import AsyncClient
from headwater.client.synchronous import Client

__all__ = ["AsyncClient", "Client"]
