"""Certificates of one cluster, whose nodes only trust each other."""

from __future__ import annotations

import datetime
import ipaddress
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_LOOPBACK = "127.0.0.1"
#: Days before now from which certificates are valid, for machines whose clock is behind, and after.
_DAYS_BEFORE, _DAYS_AFTER = 2, 365


#: Python 3.13 and newer refuse an authority without it.
_AUTHORITY_USAGE = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Certificate(NamedTuple):
    """A certificate, its private key, and the certificate of the authority, as PEM.

    Parameters
    ----------
    certificate, key, authority : bytes
        In the order of their files.
    """

    certificate: bytes
    key: bytes
    authority: bytes


class CertificateAuthority:
    """Issues the certificates of one cluster; its key never leaves this process."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("hyperplane cluster")
        public = self._key.public_key()
        identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        self._authority = (
            self._draft(self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_AUTHORITY_USAGE, critical=True)
            .add_extension(identifier, critical=False)
            .sign(self._key, SHA256())
        )

    def issue(self, host: str) -> Certificate:
        """Return the certificate of a node at an address, as a server and as a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        # Processes of a node also connect to each other at the loopback address.
        addresses = [x509.IPAddress(ipaddress.ip_address(each)) for each in (host, _LOOPBACK)]
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            self._draft(_name(host), key.public_key())
            .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(authority, critical=False)
            .sign(self._key, SHA256())
        )
        return Certificate(
            certificate.public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            self._authority.public_bytes(Encoding.PEM),
        )

    def _draft(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=public,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - datetime.timedelta(days=_DAYS_BEFORE),
            not_valid_after=now + datetime.timedelta(days=_DAYS_AFTER),
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
