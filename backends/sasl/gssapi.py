"""Kerberos by the machine's own GSSAPI, which every host of a realm has; nothing is compiled, and no package is needed.

What it goes by is the environment's: KRB5_CONFIG, the ticket cache KRB5CCNAME, and the keytab KRB5_CLIENT_KTNAME,
from which it takes a ticket itself where the cache has none that is valid.

Source: RFC 2744 (the C bindings); MIT Kerberos 1.20, gssapi/gssapi.h.
"""

import ctypes
from ctypes import POINTER, byref, c_int, c_size_t, c_uint32, c_void_p
from functools import cache
from typing import Any, Final

from backends.errors import UnsupportedAuthError

_LIBRARY: Final = "libgssapi_krb5.so.2"
_CONTINUE: Final = 1
_ERRORS: Final = 0xFFFF0000
"""Bits of a status: any of them is a failure."""
_INITIATE: Final = 1
_NOTHING_SAID: Final = ("", "Success")
_GENERAL_CODE: Final = 1
_MECHANISM_CODE: Final = 2
_MUTUAL: Final = 2
_INTEGRITY: Final = 32
"""Flags that a context must have: the server proves itself too, and messages can be signed."""


class _Buffer(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


class _Oid(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("elements", c_void_p))


def _make_oid(elements: bytes) -> tuple[_Oid, Any]:
    kept = ctypes.create_string_buffer(elements, len(elements))
    return _Oid(len(elements), ctypes.cast(kept, c_void_p)), kept


_KERBEROS, _KERBEROS_KEPT = _make_oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02")
"""1.2.840.113554.1.2.2"""
_SERVICE, _SERVICE_KEPT = _make_oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04")
"""1.2.840.113554.1.2.1.4: a name of the form service@host."""


class KerberosError(Exception):
    """Kerberos has no proof; the text is the library's: no ticket, an unknown server, an unreachable KDC."""


@cache
def _library() -> ctypes.CDLL:
    """Return the library, its functions described.

    Raises:
        UnsupportedAuthError: the machine has none.
    """
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise UnsupportedAuthError(
            f"Kerberos needs {_LIBRARY} (Debian: libgssapi-krb5-2, Red Hat: krb5-libs): {error}"
        ) from error
    code, place, buffer, number = POINTER(c_uint32), POINTER(c_void_p), POINTER(_Buffer), c_uint32
    signatures: dict[str, list[Any]] = {
        "gss_import_name": [code, buffer, POINTER(_Oid), place],
        "gss_acquire_cred": [code, c_void_p, number, c_void_p, c_int, place, c_void_p, c_void_p],
        "gss_inquire_cred": [code, c_void_p, place, c_void_p, c_void_p, c_void_p],
        "gss_display_name": [code, c_void_p, buffer, c_void_p],
        "gss_init_sec_context": [
            code, c_void_p, place, c_void_p, POINTER(_Oid), number, number, c_void_p, buffer, c_void_p, buffer,
            POINTER(number), c_void_p,
        ],
        "gss_wrap": [code, c_void_p, c_int, number, buffer, c_void_p, buffer],
        "gss_unwrap": [code, c_void_p, buffer, buffer, c_void_p, c_void_p],
        "gss_display_status": [code, number, c_int, POINTER(_Oid), code, buffer],
        "gss_release_buffer": [code, buffer],
        "gss_release_name": [code, place],
        "gss_release_cred": [code, place],
        "gss_delete_sec_context": [code, place, c_void_p],
    }  # fmt: skip
    for name, arguments in signatures.items():
        function = library[name]
        function.argtypes, function.restype = arguments, number
    return library


def name_principal() -> str:
    """Return our identity from the environment's ticket or keytab, as ``name@REALM``.

    Raises:
        UnsupportedAuthError: the machine has no Kerberos.
        KerberosError: there is no ticket, and no keytab for one.
    """
    library, minor = _library(), c_uint32()
    credential, name, shown = c_void_p(), c_void_p(), _Buffer()
    try:
        _demand(
            library.gss_acquire_cred(byref(minor), None, 0, None, _INITIATE, byref(credential), None, None),
            minor,
        )
        _demand(library.gss_inquire_cred(byref(minor), credential, byref(name), None, None, None), minor)
        _demand(library.gss_display_name(byref(minor), name, byref(shown), None), minor)
        return _take(shown).decode(errors="replace")
    finally:
        library.gss_release_name(byref(c_uint32()), byref(name))
        library.gss_release_cred(byref(c_uint32()), byref(credential))


class SecurityContext:
    """One proof between us and one server, each to the other; used by one thread at a time.

    Args:
        service: the first part of the server's principal.
        host: its second part, as the realm has it.

    Raises:
        UnsupportedAuthError: the machine has no Kerberos.
        KerberosError: no such name can be.
    """

    def __init__(self, service: str, host: str) -> None:
        self._library = _library()
        self._context = c_void_p()
        self._server = c_void_p()
        self.is_complete = False
        minor = c_uint32()
        name = _Held(f"{service}@{host}".encode())
        _demand(self._library.gss_import_name(byref(minor), name.buffer, byref(_SERVICE), byref(self._server)), minor)

    def step(self, token: bytes) -> bytes:
        """Return the answer to a server's token; the first message answers none.

        Raises:
            KerberosError: no ticket, no such server, or a wrong token of the server.
        """
        minor, answer, given = c_uint32(), _Buffer(), c_uint32()
        question = _Held(token)
        wanted = _MUTUAL | _INTEGRITY
        status = self._library.gss_init_sec_context(
            byref(minor), None, byref(self._context), self._server, byref(_KERBEROS), wanted, 0, None, question.buffer,
            None, byref(answer), byref(given), None,
        )  # fmt: skip
        taken = _take(answer)
        _demand(status, minor)
        self.is_complete = not status & _CONTINUE
        if self.is_complete and given.value & wanted != wanted:
            raise KerberosError("the server did not prove itself")
        return taken

    def wrap(self, message: bytes) -> bytes:
        """Return a message, signed."""
        minor, signed, plain = c_uint32(), _Buffer(), _Held(message)
        status = self._library.gss_wrap(byref(minor), self._context, 0, 0, plain.buffer, None, byref(signed))
        _demand(status, minor)
        return _take(signed)

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a signed message.

        Raises:
            KerberosError: the server did not sign it.
        """
        minor, plain, signed = c_uint32(), _Buffer(), _Held(message)
        status = self._library.gss_unwrap(byref(minor), self._context, signed.buffer, byref(plain), None, None)
        _demand(status, minor)
        return _take(plain)

    def close(self) -> None:
        """Forget the proof."""
        self._library.gss_delete_sec_context(byref(c_uint32()), byref(self._context), None)
        self._library.gss_release_name(byref(c_uint32()), byref(self._server))


class _Held:
    """Bytes that C reads during the lifetime of this object."""

    def __init__(self, content: bytes) -> None:
        self._content = ctypes.create_string_buffer(content, len(content))
        self._described = _Buffer(len(content), ctypes.cast(self._content, c_void_p))
        self.buffer = byref(self._described)


def _take(buffer: _Buffer) -> bytes:
    """Return the content of a C buffer, and free the buffer."""
    content = ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""
    _library().gss_release_buffer(byref(c_uint32()), byref(buffer))
    return content


def _demand(status: int, minor: c_uint32) -> None:
    if status & _ERRORS:
        text = _describe(minor.value, _MECHANISM_CODE)
        raise KerberosError(_describe(status, _GENERAL_CODE) if text in _NOTHING_SAID else text)


def _describe(code: int, kind: int) -> str:
    """Return the library's words for a code of its own, or of Kerberos."""
    rest, words, text = c_uint32(), c_uint32(), _Buffer()
    _library().gss_display_status(byref(words), code, kind, byref(_KERBEROS), byref(rest), byref(text))
    return _take(text).decode(errors="replace")
