"""Examples of requests and answers, as the OpenAPI document and its page show them."""

from collections.abc import Mapping
from typing import Any

DIGEST = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
OTHER_DIGEST = "sha256:b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c"
JOB_ID, CREATED, LATER = "baeacffadd65146a", "2026-01-01T00:00:00Z", "2026-01-01T00:00:41Z"
DIMS = {"batch": {"min": 1, "max": 64}, "seq": "1:512%8"}
REQUEST = {"dims": DIMS, "targets": ["x86-64-v3", "aarch64"], "options": {"verify": True}}
BUNDLE = {"digest": OTHER_DIGEST, "ref": f"relaxd/bundles@{OTHER_DIGEST}", "size": 3399190}
BUILD = {
    "target": "x86-64-v3",
    "state": "succeeded",
    "stage": "publish",
    "action_key": DIGEST,
    "cached": False,
    "artifact": BUNDLE,
    "dump": None,
    "error": None,
    "profile": {"measured": True},
    "numerics": {"verdict": "passed", "status": "executed"},
    "started_at": CREATED,
    "finished_at": LATER,
    "attempts": 1,
    "note": None,
    "position": None,
    "status": "executed",
}
JOB = {
    "id": JOB_ID,
    "state": "succeeded",
    "created_at": CREATED,
    "finished_at": LATER,
    "model": DIGEST,
    "name": "minilm.onnx",
    "request": REQUEST,
    "builds": [BUILD],
    "index": BUNDLE,
    "priority": 0,
    "deadline": None,
}
BRIEF = {
    "id": JOB_ID,
    "state": "running",
    "name": "minilm.onnx",
    "model": DIGEST,
    "created_at": CREATED,
    "finished_at": None,
    "builds": {"succeeded": 1, "running": 1},
    "cached": 0,
    "running": [{"target": "aarch64", "stage": "codegen"}],
    "position": None,
}
QUEUE = {"running": 1, "queued": 3, "workers": 2, "positions": {"0b9d5ecf2a6f4d11": 1}}
INSPECTION = {
    "model": DIGEST,
    "supported": True,
    "inputs": [{"name": "ids", "dtype": "int64", "shape": ["batch", "seq"]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 384]}],
    "dims": {"batch": {"min": 1, "multiple": 1}, "seq": {"min": 1, "multiple": 1}},
    "operators": {"MatMul": 36, "Softmax": 6},
    "nodes": [{"node": "/encoder/MatMul", "op": "MatMul", "supported": True}],
    "error": None,
}
TOKEN = {
    "id": "5f0d1c2e9ab34710",
    "tenant": "vision",
    "name": "nightly",
    "scopes": ["pull", "read", "submit"],
    "created_at": CREATED,
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": None,
}
TENANT = {
    "name": "vision",
    "created_at": CREATED,
    "stored_bytes": 50_000_000_000,
    "running": 4,
    "queued": 200,
    "requests": 50.0,
    "weight": 2.0,
    "shares_cache": False,
    "stores_bytes": 1_204_000_000,
}
PIN = {
    "digest": OTHER_DIGEST,
    "who": "serving",
    "why": "in use",
    "created_at": CREATED,
    "expires_at": None,
}
ALIAS = {
    "alias": "prod",
    "version": 3,
    "previous": 2,
    "moved_at": LATER,
    "moved_by": "release",
}
VERSION = {
    "name": "minilm",
    "version": 3,
    "digest": OTHER_DIGEST,
    "job_id": JOB_ID,
    "submitter": "ci",
    "labels": {"commit": "1d0f2c"},
    "notes": "",
    "created_at": CREATED,
}
MODEL = {
    "name": "minilm",
    "project": "search",
    "labels": {"team": "text"},
    "notes": "",
    "created_at": CREATED,
    "last_version": 3,
    "aliases": [ALIAS],
}
VERSION_BUILD = {
    "version": 3,
    "target": "x86-64-v3",
    "digest": OTHER_DIGEST,
    "size": 3399190,
    "status": "executed",
    "dims": {"batch": 1, "seq": 128},
    "latency_ms": 11.2,
    "reference_ms": 19.4,
    "processor": "AMD EPYC 9554P",
    "measured_at": LATER,
    "error": 0.04,
    "action_key": DIGEST,
    "changed": [{"part": "options.precision", "before": "float32", "after": "int8"}],
    "problem": None,
}
WEBHOOK = {
    "id": "9a1e07c2b5d84f63",
    "url": "https://hooks.example/relaxd",
    "events": ["alias.moved", "job.finished"],
    "created_at": CREATED,
    "created_by": "release",
}
DELIVERY = {
    "id": "msg_2f0b6c1d9e8a47530b1c2d3e4f5a6b7c",
    "event": "alias.moved",
    "created_at": CREATED,
    "attempts": 1,
    "next_at": None,
    "delivered_at": LATER,
    "error": None,
}
WHOAMI = {
    "tenant": "default",
    "name": "token",
    "scopes": ["admin"],
    "method": "token",
    "namespace": "relaxd",
}
LOGIN = {
    "issuer": "https://login.example.com",
    "client_id": "relaxd",
    "scopes": ["openid", "email"],
    "authorization_url": "https://login.example.com/authorize",
}

BODIES: Mapping[tuple[str, str], Any] = {
    ("post", "/v1/compile"): {"request": REQUEST},
    ("post", "/v1/jobs"): {"model": DIGEST, **REQUEST},
    ("post", "/v1/inspect"): {"model": DIGEST, "dims": DIMS},
    ("patch", "/v1/models/{name}"): {"project": "search", "labels": {"team": "text"}},
    ("post", "/v1/models/{name}/versions"): {"job": JOB_ID, "labels": {"commit": "1d0f2c"}},
    ("put", "/v1/models/{name}/aliases/{alias}"): {"version": "3"},
    ("post", "/v1/webhooks"): {"url": "https://hooks.example/relaxd", "events": ["alias.moved"]},
    ("put", "/v1/pins/{digest}"): {"who": "serving", "why": "in use", "days": None},
    ("post", "/v1/sign-in"): {
        "issuer": "https://login.example.com",
        "client_id": "relaxd",
        "code": "SplxlOBeZQQYbYS6WxSbIA",
        "verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        "redirect_uri": "https://relaxd.example.com/",
    },
    ("post", "/v1/tokens"): {"name": "nightly", "scopes": ["submit", "read", "pull"], "days": 90},
    ("post", "/v1/tokens/{token_id}:rotate"): {"overlap_hours": 24},
    ("post", "/v1/tenants"): {"name": "vision"},
    ("patch", "/v1/tenants/{name}"): {"running": 4, "queued": 200, "weight": 2.0},
}
"""Of JSON bodies, and of the `request` field of forms."""

ANSWERS: Mapping[tuple[str, str], Any] = {
    ("post", "/v1/compile"): JOB,
    ("post", "/v1/jobs"): JOB,
    ("get", "/v1/jobs"): {"jobs": [JOB]},
    ("get", "/v1/jobs/{job_id}"): JOB,
    ("post", "/v1/jobs/{job_id}:cancel"): JOB,
    ("get", "/v1/overview"): {"jobs": [BRIEF], "queue": QUEUE},
    ("post", "/v1/inspect"): INSPECTION,
    ("get", "/v1/actions/{digest}"): {
        "digest": DIGEST,
        "parts": {"model": DIGEST},
        "bundle": OTHER_DIGEST,
    },
    ("get", "/v1/whoami"): WHOAMI,
    ("get", "/v1/sign-in"): {"logins": [LOGIN]},
    ("post", "/v1/sign-in"): {"token": "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ..."},
    ("get", "/v1/tokens"): {"tokens": [TOKEN]},
    ("post", "/v1/tokens"): {**TOKEN, "token": "relaxd_5f0d1c2e9ab34710_..."},
    ("get", "/v1/tenants"): {"tenants": [TENANT]},
    ("post", "/v1/tenants"): TENANT,
    ("patch", "/v1/tenants/{name}"): TENANT,
    ("get", "/v1/pins"): {"pins": [PIN]},
    ("put", "/v1/pins/{digest}"): PIN,
    ("get", "/v1/webhooks"): {"webhooks": [WEBHOOK]},
    ("post", "/v1/webhooks"): {**WEBHOOK, "secret": "whsec_..."},
    ("get", "/v1/webhooks/{webhook_id}/deliveries"): {"deliveries": [DELIVERY]},
    ("get", "/v1/models"): {"models": [MODEL]},
    ("get", "/v1/models/{name}"): {**MODEL, "versions": [VERSION]},
    ("get", "/v1/models/{name}/builds"): {"builds": [VERSION_BUILD]},
    ("patch", "/v1/models/{name}"): MODEL,
    ("post", "/v1/models/{name}/versions"): VERSION,
    ("get", "/v1/models/{name}/versions/{version}"): VERSION,
    ("put", "/v1/models/{name}/aliases/{alias}"): ALIAS,
    ("get", "/healthz"): {"status": "ok"},
    ("get", "/readyz"): {"status": "ok"},
}
"""Of the JSON documents that successes have."""
