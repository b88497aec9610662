"""Whose results a tenant may take: by default its own alone."""

from relaxd.contract.canonical import canonical_bytes, digest_of
from service.core import Core
from service.identity import DEFAULT
from service.usecases.tenants import tenants


def shares(core: Core, tenant: str) -> bool:
    """True if the tenant's builds share results with others, as the operator decides: those of
    `default`, and of all tenants that share.
    """
    return core.settings.shared_cache or tenants.get(core, tenant).shares_cache


def flight_key_of(tenant: str, action_key: str, *, shared: bool) -> str:
    """Compute the key that equal builds have in common that may have each other's results. For a
    tenant that does not share, it is another digest than for any other tenant.
    """
    if tenant == DEFAULT or shared:
        return action_key
    return digest_of(canonical_bytes([tenant, action_key]))
