"""Find out if a server expects TLS, because its URL may be wrong about that.

A server without TLS waits for the end of a line.  So a TLS handshake with it ends only by a
timeout.
"""

from __future__ import annotations

import socket
import ssl

from claimlib.errors import RequestError
from claimlib.live.address import Address


def speaks_tls(address: Address, timeout_s: float) -> bool:
    """Return True if the server answers a TLS handshake within `timeout_s` seconds."""
    # Nothing is sent or read here, so no certificate is verified.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((address.host, address.port), timeout_s) as plain:
            context.wrap_socket(plain).close()
    except ssl.SSLError as error:
        # Only a TLS server sends an alert, for example because it requires a client's certificate.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def speaks_plain_text(address: Address, timeout_s: float) -> bool:
    """Return True if the server answers PING without TLS within `timeout_s` seconds."""
    try:
        with socket.create_connection((address.host, address.port), timeout_s) as plain:
            plain.sendall(b"PING\r\n")
            return plain.recv(1) in {b"+", b"-"}
    except OSError:
        return False


def wrong_scheme(address: Address) -> RequestError:
    """Build the error of a URL that is wrong about TLS."""
    actual, scheme = ("does not use TLS", "redis") if address.tls else ("uses TLS", "rediss")
    return RequestError(
        f"the server at {address.label} {actual}: begin the URL with {scheme}://, as in"
        f" {scheme}://{address.label}",
        source=address.label,
    )


def unverified_certificate(address: Address, reason: str) -> RequestError:
    """Build the error of a certificate that cannot be verified."""
    return RequestError(
        f"the certificate of {address.label} cannot be verified ({reason}): give the file of the"
        " authority that signed it (--ca-file), or the host's name as the certificate has it",
        source=address.label,
    )
