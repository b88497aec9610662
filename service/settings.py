"""Settings of the service: RELAXD_* environment variables, and values derived from them."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from artifacts.store import FRESH_S
from compiler.toolchain.objects import KERNELS_MB, KernelObjects
from service.errors import InvalidSettings
from service.pools import expand, read_pools
from service.servers import check_broker, spread_hosts

MOST_RECOVERY = 16 << 20
"""Several times what SQLite's log grows to before it is written back."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9.\[\]:-]+")


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "relaxd"


class Settings(BaseSettings):
    """One immutable set of settings; URLs left out mean the embedded form, which keeps everything
    under `data_dir`.
    """

    model_config = SettingsConfigDict(
        env_prefix="RELAXD_",
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    data_dir: Path = Field(default_factory=_default_data_dir)
    """Where the embedded form keeps its database, store and spool, and every form its scratch."""
    database_url: str | None = None
    """SQLAlchemy URL of the job database, with several hosts for a PostgreSQL that fails over
    (`postgresql://user@one,two/name`); without one, SQLite under `data_dir`.
    """
    broker_url: str | None = None
    """URL of Redis, whose doorbells wake workers, or of its Sentinels
    (`sentinel://one:26379,two:26379/0?master_name=mymaster`); without one, files under `data_dir`.
    """
    store_url: str | None = None
    """URL or path of the artifact store (`s3://bucket/prefix`); without one, under `data_dir`."""
    token: SecretStr | None = None
    """The operator's bearer token; without one, nobody is asked to sign in."""
    oidc_issuers: Path | None = None
    """TOML or JSON file of the issuers whose tokens are taken, and where people sign in."""
    allowed_hosts: str = ""
    """Names by which a service without a token may be called, separated by spaces, beside
    `localhost`, addresses, this machine's own name and the one given to `--host`.
    """
    allowed_origins: str = ""
    """Origins of web pages that may send requests that change something, separated by spaces."""
    pull_origins: str = ""
    """Origins of web pages that may pull bundles, separated by spaces; `*` for any."""
    job_timeout_s: float = Field(default=1800, gt=0)
    """Seconds that one compile may take."""
    memory_mb: int = Field(default=8192, gt=0)
    """MiB of memory that one compile may use."""
    disk_mb: int = Field(default=32768, gt=0)
    """MiB that one compile may write."""
    max_processes: int = Field(default=512, gt=0)
    """Processes and threads that one compile may start."""
    kernel_cache_mb: int = Field(default=KERNELS_MB, ge=0)
    """MiB of compiled kernels that workers keep, each for builds of one tenant; 0 for none."""
    verify_again: bool = False
    """Compare a library with the reference at all points, also where an earlier build of the tenant
    judged equal code with other weights.
    """
    allow_unsandboxed_torchscript: bool = False
    """Compile TorchScript even where the sandbox does not isolate files, so that a model can read
    and write all that the worker can.
    """
    max_model_bytes: int = Field(default=4 << 30, gt=0)
    """The largest upload."""
    redirect_mb: int = Field(default=0, ge=0)
    """Blobs of so many MiB and more are downloaded from the object store itself: after the check
    whether the tenant may read the blob, the answer is a redirect to a URL that is good for a
    minute. 0 for none.
    """
    max_uploads: int = Field(default=256, gt=0)
    """Uploads under `/v2/` that a tenant may have under way at a time."""
    upload_s: float = Field(default=3600, ge=60)
    """How long an upload stays that nobody goes on with."""
    max_connections: int = Field(default=4096, gt=0)
    """How many clients may be connected to one API process."""
    max_request_bytes: int = Field(default=1 << 20, gt=0)
    """The largest JSON document of a request."""
    max_request_values: int = Field(default=1 << 14, gt=0)
    """Values in a request's JSON document: what follows a comma, a colon or an opening bracket."""
    max_targets: int = Field(default=64, gt=0)
    """Targets of one request."""
    capabilities: str = ""
    """The only capabilities that a worker takes builds for, separated by commas: targets,
    `raw-llvm` and its like, `inspect`. `*` matches any text, `!` removes: `*,!cuda-*`. Without, all
    that it can compile for.
    """
    pools: str = ""
    """Pools of workers that are scaled apart, each with its capabilities, separated by spaces:
    `x86=*,!cuda-* cuda=cuda-*`. `spot:4=*` counts only builds beyond the first 4, which another
    pool takes. Builds for a pool wait for it even while it has no worker.
    """
    lease_s: float = Field(default=30, gt=0)
    """How long a worker may be silent before its build goes to another."""
    max_attempts: int = Field(default=3, ge=1)
    """How many workers may be lost on one build."""
    drain_s: float = Field(default=5, ge=0)
    """How long a worker that is to end goes on with its build before it gives the build back."""
    sweep_s: float = Field(default=1, gt=0)
    """Seconds between two looks for lost work."""
    sweep_limit_s: float = Field(default=120, gt=0)
    """How long one look for lost work may take before the worker ends itself, as one that hangs."""
    ring_after_s: float = Field(default=1, ge=0)
    """Age in seconds at which an unanswered doorbell counts as lost."""
    retention_days: float = Field(default=30, ge=0)
    """How long jobs that have ended, and bundles that only the action cache names, are kept; 0 for
    ever.
    """
    gc_s: float = Field(default=3600, ge=0)
    """Seconds between two garbage collections; 0 for none."""
    gc_grace_s: float = Field(default=24 * 3600, ge=2 * FRESH_S)
    """How long a blob stays that nothing refers to, twice `RELAXD_JOB_TIMEOUT_S` at the least."""
    store_quota_mb: int | None = Field(default=None, gt=0)
    """The most that the store may hold; without one, no limit."""
    store_reserve_mb: int = Field(default=64, ge=0)
    """What uploads and the store leave free on their disks, and new jobs half of it. Where the job
    database is SQLite, a quarter of it more, 16 MiB at the most, is set aside for making room.
    """
    store_patience_s: float = Field(default=600, ge=0)
    """How long a build waits for a store that is full or away."""
    signing_key: Path | None = None
    """PEM file of the ed25519 key that signs provenance; without one, nothing is signed. With
    `RELAXD_SIGNING_COMMAND`, the public key.
    """
    signing_command: str | None = None
    """A program that signs what it reads from standard input."""
    builder_id: str = "urn:relaxd:builder"
    """The URI by which signed provenance names this service."""
    audit_days: float = Field(default=90, ge=0)
    """How long entries of the audit log are kept; 0 for ever."""
    webhook_private: bool = False
    """Whether webhooks may lead to private addresses, and to plain HTTP."""
    shared_cache: bool = False
    """Whether equal builds of different tenants share one result."""
    max_log_lines: int = Field(default=2000, ge=0)
    """Log lines kept of one build."""
    worker_metrics_port: int | None = None
    """Where a worker serves its metrics; without one, nowhere."""
    traces_url: str | None = None
    """The OTLP/HTTP endpoint that takes traces; without one, no traces."""
    traces_ratio: float = Field(default=1, ge=0, le=1)
    """The part of the traces that is kept."""
    log_level: str = "INFO"
    """The least level of what is logged: `DEBUG`, `INFO`, `WARNING` or `ERROR`."""

    @property
    def database(self) -> str:
        """SQLAlchemy URL of the job database."""
        if self.database_url is None:
            return f"sqlite:///{self.data_dir / 'jobs.sqlite'}"
        return spread_hosts(self.database_url)

    @property
    def store(self) -> str:
        """URL or path of the blob store, as `artifacts.open_store` takes it."""
        return self.store_url or str(self.data_dir / "store")

    @property
    def grace_s(self) -> float:
        """`gc_grace_s`, or more where a build may take longer."""
        return max(self.gc_grace_s, 2 * self.job_timeout_s)

    @property
    def redirect_bytes(self) -> int | None:
        """`redirect_mb` in bytes, None for no redirects."""
        return self.redirect_mb << 20 or None

    @property
    def reserve_bytes(self) -> int:
        """`store_reserve_mb` in bytes."""
        return self.store_reserve_mb << 20

    @property
    def recovery_bytes(self) -> int:
        """Bytes set aside on the disk of an embedded job database for making room."""
        embedded = self.database.startswith("sqlite")
        return min(MOST_RECOVERY, self.reserve_bytes // 4) if embedded else 0

    @property
    def upload_dir(self) -> Path:
        """Where the API keeps uploads under way."""
        return self.data_dir / "uploads"

    @property
    def spool_dir(self) -> Path:
        """Where the embedded doorbell keeps its messages."""
        return self.data_dir / "spool"

    @property
    def work_dir(self) -> Path:
        """Where workers keep the files of running builds."""
        return self.data_dir / "work"

    def kernels_of(self, tenant: str) -> KernelObjects | None:
        """The kernels that builds of a tenant share, None where workers keep none."""
        limit = self.kernel_cache_mb << 20
        return KernelObjects(self.data_dir / "kernels", tenant, limit) if limit else None

    @field_validator("token")
    @classmethod
    def _a_token_is_not_empty(cls, token: SecretStr | None) -> SecretStr | None:
        # An empty variable is a mistake in a deployment, and must not open the service to everyone.
        if token is not None and not token.get_secret_value().strip():
            raise ValueError("the token is empty; unset RELAXD_TOKEN to ask for none")
        return token

    @field_validator("broker_url")
    @classmethod
    def _a_broker_is_known(cls, url: str | None) -> str | None:
        if url is not None:
            check_broker(url)
        return url

    @field_validator("capabilities")
    @classmethod
    def _capabilities_are_known(cls, patterns: str) -> str:
        if patterns and not expand(patterns):
            raise ValueError("it leaves no capability: name some, or unset it")
        return patterns

    @field_validator("pools")
    @classmethod
    def _pools_are_known(cls, text: str) -> str:
        read_pools(text)
        return text

    @field_validator("pull_origins")
    @classmethod
    def _origins_have_no_path(cls, origins: str) -> str:
        # A browser sends an origin without a path: one that has any, or a slash, would never match.
        for origin in origins.split():
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin} is not an origin; write it as in https://app.example:8443"
                )
        return origins

    def secrets(self) -> tuple[str, ...]:
        """Values that no log may show: the token, and the passwords of the servers' URLs."""
        urls = (self.database_url, self.broker_url, self.store_url)
        passwords = [urlsplit(url).password for url in urls if url]
        token = [self.token.get_secret_value()] if self.token else []
        return tuple(
            dict.fromkeys(
                spelling
                for secret in (*token, *filter(None, passwords))
                for spelling in (secret, unquote(secret))
            )
        )

    def environment(self) -> dict[str, str]:
        """The variables from which another process reads equal settings."""
        values = self.model_dump(exclude_none=True)
        plain = {
            name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            for name, value in values.items()
        }
        return {f"RELAXD_{name.upper()}": value for name, value in plain.items()}


def read_settings(**values: Any) -> Settings:
    """Settings from the environment, `values` before it; raises InvalidSettings."""
    try:
        return Settings(**values)
    except ValidationError as error:
        mistakes = [
            f"RELAXD_{mistake['loc'][0]}".upper()
            + f": {mistake['msg'].removeprefix('Value error, ')}"
            for mistake in error.errors(include_input=False)
        ]
        raise InvalidSettings("; ".join(mistakes), hint="correct the variable") from None
