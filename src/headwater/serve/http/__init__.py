"""The HTTP API: a file a noun. Errors are problem+json; every route declares its permission.

Handlers that touch disk are plain functions, so FastAPI runs them in threads; those that wait are coroutines.
"""

from headwater.serve.http.api import make_api
from headwater.serve.http.limits import Limits

__all__ = ["Limits", "make_api"]
