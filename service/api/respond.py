"""Answers to requests that failed, in the form that the path's clients read."""

from starlette.requests import Request
from starlette.responses import JSONResponse

from relaxd.contract.text import sanitize
from relaxd.http.errors import MEDIA_TYPE
from service.api.problems import Problem, problem_of

OCI_CODES = {
    401: "UNAUTHORIZED",
    403: "DENIED",
    404: "NAME_UNKNOWN",
    405: "UNSUPPORTED",
    413: "SIZE_INVALID",
    429: "TOOMANYREQUESTS",
}


class ProblemResponse(JSONResponse):
    """An RFC 9457 answer."""

    media_type = MEDIA_TYPE


def respond(request: Request, error: Exception) -> JSONResponse:
    """The answer for `error`: a problem document, or an error list as OCI clients read it under
    /v2/.
    """
    problem = problem_of(error)
    # What a problem quotes is the client's, and may not even be text.
    if request.url.path.startswith("/v2/"):
        document = sanitize(_oci(problem))
        return JSONResponse(document, status_code=problem.status, headers=problem.headers)
    identity = {"request_id": getattr(request.state, "request_id", None)}
    document = sanitize(problem.to_json() | identity)
    return ProblemResponse(document, status_code=problem.status, headers=problem.headers)


def _oci(problem: Problem) -> dict[str, object]:
    code = OCI_CODES.get(problem.status, "UNKNOWN" if problem.status >= 500 else "UNSUPPORTED")
    return {"errors": [{"code": code, "message": problem.detail, "detail": problem.to_json()}]}
