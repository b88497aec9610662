"""The credential that a request carries."""

import base64
import binascii

LONGEST_CREDENTIAL = 16 << 10


def read_credential(header: str) -> str:
    """The token of an Authorization header, empty for none that could be one; the password of Basic
    authentication, with any user name, is a token too.
    """
    scheme, _, value = header.partition(" ")
    if len(value) > LONGEST_CREDENTIAL:
        return ""
    match scheme.lower():
        case "bearer":
            return value.strip()
        case "basic":
            try:
                decoded = base64.b64decode(value.strip(), validate=True)
                return decoded.partition(b":")[2].decode()
            except (binascii.Error, ValueError):
                return ""
    return ""
