"""Certificates of one cluster, whose machines only trust each other.

Pods of the engine ``ray:kubernetes`` run this module as a program, as text, because their image may
not have this package. Therefore it imports no other module of it.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

#: Names of the files with the certificate and the key of an authority, for pods.
AUTHORITY_FILES = ("ca.crt", "ca.key")
_LOOPBACK = "127.0.0.1"
#: Days before now from which certificates are valid, for machines whose clock is behind, and after.
_DAYS_BEFORE, _DAYS_AFTER = 2, 365


#: Names of the files with a certificate, its private key, and the certificate of the authority.
FILE_NAMES = ("certificate.pem", "key.pem", "authority.pem")
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def write(self, folder: Path) -> None:
        """Write the files FILE_NAMES to a folder; only this user can read them."""
        for name, content in zip(FILE_NAMES, self, strict=True):
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)


class CertificateAuthority:
    """Issues the certificates of one cluster.

    Parameters
    ----------
    pair : tuple of bytes, optional
        Certificate and key of an existing authority, from :meth:`export`; by default new ones,
        whose key stays in this process unless it is exported.
    """

    def __init__(self, pair: tuple[bytes, bytes] | None = None) -> None:
        self._name = _name("hyperplane cluster")
        if pair is not None:
            self._authority = x509.load_pem_x509_certificate(pair[0])
            key = load_pem_private_key(pair[1], password=None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)  # noqa: S101 - for mypy
            self._key = key
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = self._key.public_key()
        identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        self._authority = (
            self._draft(self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_AUTHORITY_USAGE, critical=True)
            .add_extension(identifier, critical=False)
            .sign(self._key, SHA256())
        )

    def export(self) -> tuple[bytes, bytes]:
        """Return the certificate and the key of the authority, as PEM."""
        return self._authority.public_bytes(Encoding.PEM), _serialize(self._key)

    def issue(self, host: str, names: Sequence[str] = ()) -> Certificate:
        """Return the certificate of a node at an address, as a server and as a client.

        ``names`` are host names of the node.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        # Processes of a node also connect to each other at the loopback address.
        addresses: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(each)) for each in (host, _LOOPBACK)
        ]
        addresses += [x509.DNSName(name) for name in names]
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
            _serialize(key),
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


def _serialize(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def main(authority: str, folder: str, host: str, *names: str) -> None:
    """Issue the certificate of a pod with the authority in a folder, and write its files.

    Parameters
    ----------
    authority : str
        Folder with the files of the authority, :data:`AUTHORITY_FILES`.
    folder : str
        Folder of the files that are written.
    host : str
        Address of the pod.
    *names : str
        Host names of the pod.
    """
    certificate, key = (Path(authority, name).read_bytes() for name in AUTHORITY_FILES)
    issued = CertificateAuthority((certificate, key)).issue(host, names)
    issued.write(Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
