"""What is no HTTP request, or has an address of more than 64 KB, is refused before any route: as a problem, too."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from headwater.serve.http.problems import problem


class Protocol(HttpToolsProtocol):
    def send_400_response(self, msg: str) -> None:
        """uvicorn says it in plain text."""
        told = problem(400, "BadRequest", f"{msg.rstrip('.')}. Mend it; an address may have 64 KB at most.")
        told.headers["connection"] = "close"
        lines = [name + b": " + value for name, value in (*self.server_state.default_headers, *told.raw_headers)]
        self.transport.write(STATUS_LINE[400] + b"\r\n".join(lines) + b"\r\n\r\n" + bytes(told.body))
        self.transport.close()
