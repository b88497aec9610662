"""Look-ups in the store, remembered for as long as they may be taken for current."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from artifacts.documents import keep
from artifacts.errors import StoreError
from artifacts.once import once
from service.core import Core
from service.recent import Renewal

LOOK_S = 30.0
"""How long nothing is asked again."""
NONE_S = 1.0
"""The same where nothing was found."""
MOST_S = 1800.0
"""How long a look at names and at the first blob is enough; see `recall`."""

logger = structlog.get_logger("relaxd.store")

T = TypeVar("T")


def looking(core: Core) -> Core:
    """The core for the length of one look at the store, which reads nothing twice."""
    blobs = once(core.store.blobs)
    actions = core.store.actions.seen_by(partial(keep, blobs))
    return replace(core, store=replace(core.store, blobs=blobs, actions=actions))


def recall(
    core: Core, key: tuple[Hashable, ...], find: Callable[[Core], T], stands: Callable[[T], bool]
) -> T:
    """Return what `find` reads by one snapshot, and has to touch: collections spare it for the
    grace period, of which a quarter is waited at the most. It is found anew then, where `stands`
    says that a name has moved or a blob is lost, and once any blob has been set aside as corrupt.
    Raises as both do.
    """
    most_s = min(MOST_S, core.settings.grace_s / 4)
    return core.recent.get(
        (*key, _set_aside(core)),
        core.clock(),
        LOOK_S,
        lambda: find(looking(core)),
        none_s=NONE_S,
        renewal=Renewal(most_s, stands),
    )


def _set_aside(core: Core) -> int | None:
    """A number that changes once another blob is corrupt; None where the store does not say."""
    return core.recent.get(
        "set aside", core.clock(), LOOK_S, lambda: _listed_aside(core), none_s=NONE_S
    )


def _listed_aside(core: Core) -> int | None:
    try:
        return hash(frozenset(core.store.blobs.quarantine()))
    except StoreError as error:
        logger.warning("what was set aside is not known", error=str(error))
        return None
