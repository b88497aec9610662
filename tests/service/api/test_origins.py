"""Pages of other origins make browsers send nothing that changes something."""

from pathlib import Path

import pytest

from tests.service.live import Live, live

FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://[", ""])
@pytest.mark.parametrize("path", ["/v1/compile", "/v1/jobs", "/v2/relaxd/m/blobs/uploads/"])
def test_a_page_of_another_origin_is_refused(api: Live, origin: str, path: str) -> None:
    headers = {"Origin": origin, "Content-Type": FORM}
    answer = api.http.post(path, content=b"x", headers=headers)
    assert answer.status_code == 403
    if path.startswith("/v1"):
        assert answer.json()["code"] == "http.foreign_origin"
    else:
        assert answer.json()["errors"][0]["code"] == "DENIED"


def test_reading_and_the_services_own_pages_go_on(api: Live) -> None:
    assert api.http.get("/v1/jobs", headers={"Origin": "https://evil.example"}).status_code == 200
    own = {"Origin": api.url}
    assert api.http.post("/v1/jobs/none:cancel", headers=own).json()["code"] == "job.unknown"


def test_an_origin_can_be_allowed(tmp_path: Path) -> None:
    with live(tmp_path, allowed_origins="https://ci.example https://b.example") as running:
        for origin, status in (("https://b.example", 404), ("https://c.example", 403)):
            answer = running.http.post("/v1/jobs/none:cancel", headers={"Origin": origin})
            assert answer.status_code == status
