"""What must never be read by others is taken out of messages: passwords, tokens, keys, whatever writes them down.

The server's loggers pass through it, and so does the text of every problem it answers with. It goes by the look of
things, as a last line: nothing here puts a secret into a message on purpose.
"""

from __future__ import annotations

import logging
import re

HIDDEN = "***"
_SECRETS = (
    (re.compile(r"(\b[a-z][a-z0-9+.\-]*://[^\s:/@]*):[^\s@/]+@", re.IGNORECASE), rf"\1:{HIDDEN}@"),
    (re.compile(r"\bhw_[0-9a-f]{12}_[A-Za-z0-9_\-]+"), HIDDEN),
    (re.compile(r"\b(whsec_|whsk_)[A-Za-z0-9+/=_\-]+"), HIDDEN),
    (re.compile(r"\$argon2\w*\$[^\s\"']+"), HIDDEN),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=\-]{6,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (
        re.compile(
            r"((?:password|passwd|pwd|secret|token|api[_-]?key|authorization|cookie)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]+",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
)


def redacted(text: str) -> str:
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


class Redaction(logging.Formatter):
    """One line a message, secrets out, also those of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record)).replace("\r", "\\r").replace("\n", "\\n")
