"""
TLS as the user set it up: whom to trust, our own certificate, and what a failure means.
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

#: What TLS raises where the other side ends the connection.
ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)

# Where systems keep whom they trust; a Python that was built elsewhere may not know the place.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

_NO_LIST, _LIST_OUT_OF_DATE = 3, 12
_NAME_MISMATCH, _ADDRESS_MISMATCH = 62, 64

# By OpenSSL's number of the check that failed.
_HINTS = {
    _NO_LIST: "does kafka.ssl.crl.location hold the list of the authority that signed it?",
    _LIST_OUT_OF_DATE: "fetch that of kafka.ssl.crl.location anew",
    9: "it is not valid yet; check the clocks",
    10: "it is out of date; renew it on the broker",
    23: "it was revoked",
    _NAME_MISMATCH: "connect by a name that the certificate holds, or have this one added to it",
    _ADDRESS_MISMATCH: "connect by an address that the certificate holds, or have this one added",
}
_DISTRUST = "does kafka.ssl.ca.location name the authority that signed it?"


def tls_context(tls: Tls) -> ssl.SSLContext:
    """
    Return a context for one connection; files are read anew, since they may have been renewed.

    Raises :class:`TlsError` that names the setting which cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify and tls.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
    if tls.cipher_suites:
        with _naming("ssl.cipher.suites", "the names, which are OpenSSL's"):
            context.set_ciphers(tls.cipher_suites)
    _load_trust(context, tls)
    _load_own(context, tls)
    return context


@contextmanager
def _naming(setting: str, check: str = "the file, its kind and its rights") -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, TypeError) as cause:
        reason = getattr(cause, "reason", None) or getattr(cause, "strerror", None) or cause
        msg = f"kafka.{setting} cannot be used: {reason}; check {check}"
        raise TlsError(msg) from cause


def _load_trust(context: ssl.SSLContext, tls: Tls) -> None:
    if tls.ca_location and tls.ca_location != "probe":
        is_folder = Path(tls.ca_location).is_dir()
        with _naming("ssl.ca.location"):
            context.load_verify_locations(**{"capath" if is_folder else "cafile": tls.ca_location})
    elif not tls.ca_pem and tls.verify:
        _load_system_trust(context)
    if tls.ca_pem:
        with _naming("ssl.ca.pem"):
            context.load_verify_locations(cadata=tls.ca_pem)
    if tls.crl_location:
        with _naming("ssl.crl.location"):
            context.load_verify_locations(cafile=tls.crl_location)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_system_trust(context: ssl.SSLContext) -> None:
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    folder = ssl.get_default_verify_paths().capath
    known = context.cert_store_stats()["x509_ca"] or (folder and any(Path(folder).iterdir()))
    bundle = next(filter(os.path.exists, _BUNDLES), None)
    if bundle is not None and not known:
        context.load_verify_locations(cafile=bundle)


def _load_own(context: ssl.SSLContext, tls: Tls) -> None:
    check = "both files, and kafka.ssl.key.password"
    with ExitStack() as files, _naming("ssl.certificate.* or kafka.ssl.key.*", check):
        certificate = _file(tls.certificate_pem, tls.certificate_location, files)
        key = _file(tls.key_pem, tls.key_location, files)
        if certificate is None and key is None:
            return
        if certificate is None:
            msg = "there is a key, and no certificate for it"
            raise ValueError(msg)
        # Without a function that answers, OpenSSL would ask a terminal for the password.
        context.load_cert_chain(certificate, key, password=lambda: tls.key_password)


def _file(pem: str, location: str, files: ExitStack) -> str | None:
    return files.enter_context(_written(pem)) if pem else location or None


@contextmanager
def _written(pem: str) -> Iterator[str]:
    """
    Give a text as a file, in memory where the system can, since it may be a key.
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


def tls_failure(cause: Exception, address: Address) -> TlsError | None:
    """
    Return the error that says which check failed, or what the other side disliked.

    None if it was not TLS that failed.
    """
    if not isinstance(cause, ssl.SSLError):
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        hint = _HINTS.get(cause.verify_code, _DISTRUST)
        return TlsError(
            f"{address}: the broker's certificate is not accepted: {cause.verify_message} "
            f"(check {cause.verify_code}); {hint}"
        )
    reason = cause.reason or str(cause)
    if "ALERT" in reason:
        return TlsError(
            f"{address}: the broker ends the TLS connection: {reason}; it may want a certificate "
            "of ours, see kafka.ssl.certificate.location and kafka.ssl.key.location, "
            "or dislike the one it got, or the TLS version"
        )
    return TlsError(
        f"{address}: TLS fails: {reason}; is it a TLS listener? "
        "kafka.security.protocol must be the listener's"
    )
