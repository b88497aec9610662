"""Which addresses belong to the Internet, so that a server may connect to them for anyone."""

import ipaddress

_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: Address) -> bool:
    """True for an address of the Internet, also for one inside of an IPv6 address that stands for
    an IPv4 address.
    """
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if address.teredo:
            return False
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast
