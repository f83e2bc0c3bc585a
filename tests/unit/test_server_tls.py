"""TLS by certificate files, through real sockets."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

import headwater as hw
from headwater.errors import Unreachable, UsageError
from headwater.serve.address import with_tls
from headwater.serve.server import Server
from tests.unit.http_shop import Shop, click


def test_a_client_that_trusts_the_certificate_is_served_and_no_other(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    server = shop.server(with_tls("127.0.0.1:0", certificate, key))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    monkeypatch.setattr("headwater.client.steps.RESTS_S", ())
    try:
        assert server.url.startswith("https://127.0.0.1:")
        with hw.Client(server.url, verify=trusting) as client:
            client.topic("clicks").append([click()])
        with hw.Client(server.url) as client, pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            client.topic("clicks").append([click()])
    finally:
        server.stop()
    assert shop.clicks.read().num_rows == 1


def test_a_wrong_certificate_is_told_before_anything_starts(shop: Shop, tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    with pytest.raises(UsageError, match="cannot use the certificate"):
        Server(shop.api(), with_tls("127.0.0.1:0", rubbish, rubbish))
    with pytest.raises(UsageError, match="go together"):
        with_tls("127.0.0.1:0", rubbish, None)
