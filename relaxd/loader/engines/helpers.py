"""The library that runs parallel loops: its functions, and how compiled code finds them."""

import ctypes
from contextlib import suppress

_LAUNCH = "__TVMBackendParallelLaunch"
"""The variable with the function that runs a library's parallel loops; TVM's runtime sets it to its
own function as it opens the library.
"""


class Helpers:
    """The library, open in this process for good."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.relaxd_team.restype = library.relaxd_lead.restype = ctypes.c_void_p
        library.relaxd_team.argtypes = (
            ctypes.c_int32,
            ctypes.c_int64,
            ctypes.POINTER(ctypes.c_int64),
        )
        library.relaxd_lead.argtypes = (ctypes.c_void_p,)
        # That of a bundle of an earlier version does not count loops.
        self._leave = getattr(library, "relaxd_leave", None)

    def serve(self, library: str) -> None:
        """Have the parallel loops of a library, which TVM's runtime has opened, run here; one
        without kernels has none.
        """
        opened = ctypes.CDLL(library)
        with suppress(ValueError):
            ctypes.c_void_p.in_dll(opened, _LAUNCH).value = ctypes.cast(
                self._library.relaxd_launch, ctypes.c_void_p
            ).value

    @property
    def parallel(self) -> int | None:
        """The function by which libraries without a runtime share out loops."""
        return ctypes.cast(self._library.relaxd_parallel, ctypes.c_void_p).value

    def start(self, count: int, patience: int) -> tuple[int, list[int]]:
        """A team of so many helpers, and their kernel ids; they look for work for `patience` ns
        before they sleep. Raises OSError.
        """
        ids = (ctypes.c_int64 * count)()
        team = self._library.relaxd_team(count, patience, ids)
        if team is None:
            raise OSError(f"the system gives no {count} more threads")
        return team, list(ids)

    def lead(self, team: int) -> None:
        """From here on the calling thread's parallel loops are shared with that team."""
        self._library.relaxd_lead(team)

    def leave(self) -> bool:
        """From here on the calling thread's parallel loops are its own; whether there may have been
        any since it took the lead.
        """
        if self._leave is not None:
            return bool(self._leave())
        self._library.relaxd_lead(None)
        return True
