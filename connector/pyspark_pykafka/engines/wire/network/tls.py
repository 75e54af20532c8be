"""
TLS contexts from the user's settings, and error messages for failed handshakes.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import TlsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.settings.wire_config import Address, Tls

#: The errors of TLS for a connection that the other side closed.
DISCONNECTS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)

# Where systems keep their trusted authorities; a Python built elsewhere may look somewhere else.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

_NO_CRL, _EXPIRED_CRL = 3, 12
_NAME_MISMATCH, _ADDRESS_MISMATCH = 62, 64

# Advice by OpenSSL's code for the check that failed (X509_V_ERR_...).
_HINTS = {
    _NO_CRL: "does kafka.ssl.crl.location hold the CRL of the authority that signed it?",
    _EXPIRED_CRL: "the CRL in kafka.ssl.crl.location has expired; download a new one",
    9: "it is not valid yet; check the clocks",
    10: "it has expired; renew it on the broker",
    23: "it was revoked",
    _NAME_MISMATCH: "connect by a name that the certificate holds, or add this name to it",
    _ADDRESS_MISMATCH: "connect by an address that the certificate holds, or add this one to it",
}
_UNTRUSTED = "does kafka.ssl.ca.location name the authority that signed it?"


def tls_context(tls: Tls) -> ssl.SSLContext:
    """
    Return a context for one connection; files are read each time, since they may be replaced.

    Raises :class:`TlsError`, naming the setting that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify and tls.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
    if tls.cipher_suites:
        with _tls_errors_for("ssl.cipher.suites", "the names; they must be OpenSSL's"):
            context.set_ciphers(tls.cipher_suites)
    _load_trust(context, tls)
    _load_key_pair(context, tls)
    return context


@contextmanager
def _tls_errors_for(
    setting: str, check: str = "the file, its format and its permissions"
) -> Iterator[None]:
    """
    Raise :class:`TlsError` with the setting's name, and what to check, for errors in the block.
    """
    try:
        yield
    except (OSError, ValueError, TypeError) as cause:
        reason = getattr(cause, "reason", None) or getattr(cause, "strerror", None) or cause
        msg = f"kafka.{setting} cannot be used: {reason}; check {check}"
        raise TlsError(msg) from cause


def _load_trust(context: ssl.SSLContext, tls: Tls) -> None:
    if tls.ca_location and tls.ca_location != "probe":
        is_folder = Path(tls.ca_location).is_dir()
        with _tls_errors_for("ssl.ca.location"):
            context.load_verify_locations(**{"capath" if is_folder else "cafile": tls.ca_location})
    elif not tls.ca_pem and tls.verify:
        _load_system_trust(context)
    if tls.ca_pem:
        with _tls_errors_for("ssl.ca.pem"):
            context.load_verify_locations(cadata=tls.ca_pem)
    if tls.crl_location:
        with _tls_errors_for("ssl.crl.location"):
            context.load_verify_locations(cafile=tls.crl_location)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_system_trust(context: ssl.SSLContext) -> None:
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    folder = ssl.get_default_verify_paths().capath
    has_roots = context.cert_store_stats()["x509_ca"] or (folder and any(Path(folder).iterdir()))
    bundle = next(filter(os.path.exists, _BUNDLES), None)
    if bundle is not None and not has_roots:
        context.load_verify_locations(cafile=bundle)


def _load_key_pair(context: ssl.SSLContext, tls: Tls) -> None:
    check = "both files, and kafka.ssl.key.password"
    with ExitStack() as files, _tls_errors_for("ssl.certificate.* or kafka.ssl.key.*", check):
        certificate = _path(tls.certificate_pem, tls.certificate_location, files)
        key = _path(tls.key_pem, tls.key_location, files)
        if certificate is None and key is None:
            return
        if certificate is None:
            msg = "there is a key, but no certificate for it"
            raise ValueError(msg)
        # Without a callback OpenSSL would prompt for the password on a terminal.
        context.load_cert_chain(certificate, key, password=lambda: tls.key_password)


def _path(pem: str, location: str, files: ExitStack) -> str | None:
    return files.enter_context(_pem_file(pem)) if pem else location or None


@contextmanager
def _pem_file(pem: str) -> Iterator[str]:
    """
    Yield the path of a temporary file with this PEM text, which may be a private key.

    The file is in memory if the system supports it.
    """
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("pem"), "w") as file:
            file.write(pem)
            file.flush()
            yield f"/dev/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(pem)
        file.flush()
        yield file.name


def tls_error(cause: Exception, address: Address) -> TlsError | None:
    """
    Return the error that names the failed check or the alert, or None if TLS was not the cause.
    """
    if not isinstance(cause, ssl.SSLError):
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        hint = _HINTS.get(cause.verify_code, _UNTRUSTED)
        return TlsError(
            f"{address}: the broker's certificate was rejected: {cause.verify_message} "
            f"(check {cause.verify_code}); {hint}"
        )
    reason = cause.reason or str(cause)
    if "ALERT" in reason:
        return TlsError(
            f"{address}: the broker closed the TLS connection: {reason}; it may require a client "
            "certificate (kafka.ssl.certificate.location, kafka.ssl.key.location), or have "
            "rejected ours, or the TLS version"
        )
    return TlsError(
        f"{address}: TLS failed: {reason}; is it a TLS listener? "
        "kafka.security.protocol must match the listener"
    )
