"""The file descriptors that a process may have open, and how many connections fit in them."""

import resource

MOST = 1 << 16
"""More than this many connections do not pay: tables of the kernel grow with the limit."""
OTHERS = 256
"""Descriptors for the database, the store, pipes and threads."""
PER_CONNECTION = 2
"""A socket, and the upload or the blob that goes over it."""


def raise_limit() -> int:
    """Let this process open as many files as it may, MOST at the most; the limit from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MOST if soft == resource.RLIM_INFINITY else soft


def connections(descriptors: int) -> int:
    """How many connections those descriptors are enough for, one at the least."""
    return max(1, (descriptors - OTHERS) // PER_CONNECTION)
