"""Errors of the artifact store; each carries a stable `code` and says what to change."""

from relaxd.errors import RelaxdError


class StoreError(RelaxdError):
    """Base of every error that the artifact store raises."""

    code = "store.error"


class InvalidDigest(StoreError):
    """The text is not `sha256:` and 64 lower-case hex digits."""

    code = "store.invalid_digest"

    def __init__(self, digest: str) -> None:
        super().__init__(
            f"{digest[:120]!r} is not a digest",
            hint="write it as sha256:<64 lower-case hex digits>",
            digest=digest[:120],
        )


class BlobNotFound(StoreError):
    """The store has no such blob."""

    code = "store.not_found"

    def __init__(self, digest: str) -> None:
        super().__init__(
            f"the store has no blob {digest}", hint="push it, or build it again", digest=digest
        )
        self.digest = digest


class NoDump(StoreError):
    """No dump of the bundle was kept."""

    code = "store.no_dump"

    def __init__(self, bundle: str) -> None:
        super().__init__(
            f"the store has no dump of {bundle}",
            hint="compile the model with options.dump",
            digest=bundle,
        )


class UnknownAction(StoreError):
    """No bundle is recorded for the action key."""

    code = "store.unknown_action"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"no bundle is recorded for the action key {key}",
            hint="only builds that succeeded are recorded",
            digest=key,
        )


class BlobCorrupt(StoreError):
    """The stored bytes do not hash to their digest; the blob has been set aside and is
    now missing.
    """

    code = "store.corrupt"

    def __init__(self, digest: str) -> None:
        super().__init__(
            f"blob {digest} was corrupt and has been quarantined",
            hint="push it again, or build it again",
            digest=digest,
        )
        self.digest = digest


class DigestMismatch(StoreError):
    """The bytes given do not hash to the digest they were announced with; nothing was stored."""

    code = "store.digest_mismatch"

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(
            f"the content has digest {actual}, not {expected}",
            hint="send the content whole and unchanged",
            expected=expected,
            actual=actual,
        )
        self.expected = expected
        self.actual = actual


class InvalidManifest(StoreError):
    """The bytes are not an OCI manifest or index that this store can use."""

    code = "store.invalid_manifest"


class UnsafeTitle(InvalidManifest):
    """A layer's title would be written outside the bundle's directory, or over another file."""

    code = "store.unsafe_title"


class StorageFailed(StoreError):
    """The disk or the remote store refused an operation; it may succeed when tried again."""

    code = "store.unavailable"


class StoreFull(StorageFailed):
    """The disk, or the quota, has no room for what was to be written; nothing was stored."""

    code = "store.full"


class UnsupportedStore(StoreError):
    """The store's URL names no kind of store that is known."""

    code = "store.unsupported_url"
