"""Requests to servers of the tests: no certificates are read, which takes 28 ms a client."""

import ssl
from functools import partial

import httpx

_NONE = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

Client = partial(httpx.Client, verify=_NONE)
AsyncClient = partial(httpx.AsyncClient, verify=_NONE)
get = partial(httpx.get, verify=_NONE)
post = partial(httpx.post, verify=_NONE)
