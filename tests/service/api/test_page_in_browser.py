"""The page over a service whose compiler only writes files: many jobs, targets, full reports."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from sqlalchemy import insert, update

from relaxd.contract.request import CompileRequest
from service.db.schema import builds, jobs
from service.domain import EventType
from service.identity import Scope
from tests.service.api.page_report import report
from tests.service.live import Live, live
from tests.service.tenancy import House, compile_model, house
from tests.support.browser import browser, check, open_page

pytestmark = pytest.mark.slow

JOBS, TARGETS = 1000, 50
DIGEST = "sha256:" + "ab" * 32
STATES = ("succeeded", "failed", "running", "queued")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("crowded")) as running:
        fill(running)
        yield running


def fill(running: Live) -> None:
    """Many jobs of many targets, of which some run and some wait."""
    request = CompileRequest.of(targets=[f"target-{index:02}" for index in range(TARGETS)])
    now, job_rows, build_rows = time.time(), [], []
    for number in range(JOBS):
        state = STATES[0] if number % 7 else STATES[number // 7 % 4]
        ended = state in ("succeeded", "failed")
        position = now - number * 60
        job = {
            "id": f"{number:016x}",
            "kind": "compile",
            "state": state,
            "model": f"sha256:{number:064x}",
            "model_name": f"model-{number:04}.onnx",
            "request": request.to_json(),
            "fingerprint": "",
            "created_at": position,
            "finished_at": position + 40 if ended else None,
        }
        job_rows.append(job)
        build_rows += [
            {
                "id": f"{job['id']}-{field}",
                "job_id": job["id"],
                "position": field,
                "target": target,
                "capability": target,
                "state": state if field % 5 == 0 or state == "queued" else "succeeded",
                "stage": "codegen" if state == "running" else None,
                "created_at": position,
                "due_at": position,
                "rung_at": position,
            }
            for field, target in enumerate(request.targets)
        ]
    with running.services.core.writing() as tx:
        tx.connection.execute(insert(jobs), job_rows)
        tx.connection.execute(insert(builds), build_rows)


@pytest.mark.long
def test_a_thousand_jobs_of_fifty_targets(chromium: Browser, crowded: Live) -> None:
    with open_page(chromium) as page:
        page.goto(crowded.url)
        rows = page.get_by_role("list", name="Jobs, the newest first").locator("li")
        expect(rows).to_have_count(100)
        check(page, "crowded", full=False)
        for shown in range(200, JOBS + 1, 100):
            page.get_by_role("button", name="Show older jobs").click()
            expect(rows).to_have_count(shown)
        page.get_by_label("Find jobs by name or id").fill("model-0777")
        expect(rows).to_have_count(1)
        page.get_by_label("Find jobs by name or id").fill("")
        page.get_by_role("button", name="Queued").click()
        expect(rows.last).to_contain_text("next in the queue")
        expect(rows.first.get_by_label("50 queued")).to_be_visible()
        page.get_by_role("button", name="Running").click()
        expect(rows.first).to_contain_text("codegen and 9 more")
        rows.first.get_by_role("link").click()
        targets = page.get_by_label("Targets", exact=True).locator("li")
        expect(targets).to_have_count(TARGETS)
        check(page, "crowded-job")


def test_a_job_that_another_submits_appears_by_itself(chromium: Browser, crowded: Live) -> None:
    with open_page(chromium) as page:
        page.goto(crowded.url)
        expect(page.get_by_text("model-0000.onnx")).to_be_visible()
        job = crowded.compile(b"fresh", wait=20).json()
        first = page.get_by_role("list", name="Jobs, the newest first").locator("li").first
        expect(first).to_contain_text(job["id"])
        expect(first.get_by_label("1 succeeded")).to_be_visible()


def test_a_full_report(chromium: Browser, crowded: Live) -> None:
    with open_page(chromium) as page:
        serve_reports(page)
        page.goto(f"{crowded.url}/#/builds/{DIGEST}")
        chart = page.get_by_role("img", name=re.compile("^relaxd: .*ONNX Runtime 1.31.1: "))
        expect(chart).to_be_visible()
        expect(page.get_by_text("Dotted: the fitted cost")).to_be_visible()
        page.get_by_role("button", name="Table").click()
        rows = page.get_by_role("region", name="Latency at each point").get_by_role("row")
        expect(rows.nth(1)).to_contain_text("2.00×")
        page.get_by_role("button", name="Chart").click()
        tiles = page.get_by_role("group", name="Kernels by their share of the time")
        tiles.get_by_role("button", name=re.compile("^softmax")).focus()
        expect(page.get_by_text("/encoder/Softmax", exact=True)).to_be_visible()
        page.get_by_label("Find kernels by node or name").fill("head")
        expect(tiles.locator(".dim")).to_have_count(len(report()["kernels"]) - 1)
        page.get_by_label("Find kernels by node or name").fill("")
        page.get_by_text(re.compile("^All .* kernels as a table")).click()
        listed = page.get_by_role("region", name="All kernels").get_by_role("row").nth(1)
        for text in ("2.62 MFLOP", "34.0 KiB", "82 %"):
            expect(listed).to_contain_text(text)
        heat = page.get_by_role("region", name="Error of each output at each point")
        expect(heat.get_by_role("cell").first).to_have_text("0.01 %")
        check(page, "report")


def test_two_full_reports_and_the_same_one_twice(chromium: Browser, crowded: Live) -> None:
    with open_page(chromium) as page:
        serve_reports(page)
        other = "sha256:" + "cd" * 32
        page.goto(f"{crowded.url}/#/diff/{DIGEST}/{other}")
        figures = page.locator(".figures")
        expect(figures).to_contain_text("+50 %")
        changes = page.get_by_role("region", name="Kernels of both builds").get_by_role("row")
        expect(changes.nth(1)).to_contain_text("+50 %")
        check(page, "comparison")
        page.goto(f"{crowded.url}/#/diff/{DIGEST}/{DIGEST}")
        expect(page.get_by_text("Both are the same build.")).to_be_visible()
        expect(figures).to_contain_text("unchanged")


def serve_reports(page: Page) -> None:
    """Answers for the reports: the second digest's build is half as fast again."""

    def answer(route: Route) -> None:
        slow = "cd" * 32 in route.request.url
        document: Any = report(slower=1.5 if slow else 1.0)
        if not route.request.url.endswith("/report"):
            digest = DIGEST
            document = {"digest": digest, "ref": f"relaxd/bundles@{digest}", "size": 1, "files": []}
        route.fulfill(body=json.dumps(document), content_type="application/json")

    page.route("**/v1/artifacts/**", answer)


INSPECTION = {
    "model": DIGEST,
    "supported": True,
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["n", "384"]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["n", "2"]}],
    "dims": {"n": {"min": 1, "multiple": 1}},
    "operators": {"MatMul": 2},
    "nodes": [],
}


def test_the_form_has_every_option_and_sends_those_that_were_chosen(
    chromium: Browser, crowded: Live
) -> None:
    model, samples = crowded.upload(b"a model of two products"), crowded.upload(b"an .npz")

    def inspect(route: Route) -> None:
        report = INSPECTION | {"model": model, "samples": samples}
        route.fulfill(body=json.dumps(report), content_type="application/json")

    with open_page(chromium) as page:
        page.route("**/v1/inspect*", inspect)
        page.goto(f"{crowded.url}/#/compile")
        files: list[Any] = [
            {"name": name, "mimeType": "application/octet-stream", "buffer": b"bytes"}
            for name in ("m.onnx", "inputs.npz")
        ]
        with page.expect_request("**/v1/inspect*") as sent:
            page.set_input_files("input[multiple]", files)
        assert b'name="samples"; filename="inputs.npz"' in (sent.value.post_data_buffer or b"")
        options = page.get_by_role("region", name="Options")
        for summary in ("Checks and measurements", "Language models", "Library"):
            options.locator("summary", has_text=summary).click()
        described = crowded.http.get("/openapi.json").json()["components"]["schemas"]["OptionsIn"]
        controls = options.locator(".option")
        expect(controls).to_have_count(len(described["properties"]) + 1)
        limit = options.get_by_label("Error limit of precision")
        expect(limit).to_be_disabled()
        options.get_by_label("Precision", exact=True).select_option("int8")
        expect(options.get_by_label("Weights", exact=True)).to_be_disabled()
        limit.fill("0.02")
        options.get_by_label("Calibration").select_option("static")
        options.get_by_label("Backend").select_option("standalone")
        options.get_by_label("Sizes to measure").fill("n=1,64")
        options.get_by_label("KV cache").select_option("lifted")
        options.get_by_label("Type of the cache").select_option("int8")
        options.get_by_label("KV cache").select_option("passed")
        page.get_by_text("Inputs, constants and shapes").click()
        page.get_by_label("Names for data-dependent shapes").fill("boxes=[k,4]")
        page.get_by_text("The same on the command line").click()
        command = page.get_by_label("command", exact=True)
        for words in ("--precision int8", "--precision-error 0.02", "--flavour standalone"):
            expect(command).to_contain_text(words)
        for words in ("--option calibration=static", "--grid n=1,64", "--samples inputs.npz"):
            expect(command).to_contain_text(words)
        expect(command).not_to_contain_text("cache")
        check(page, "compile-options")
        page.get_by_role("button", name="Compile for native").click()
        expect(page.get_by_role("heading", name="m.onnx")).to_be_visible()
        job = crowded.http.get(f"/v1/jobs/{page.url.rpartition('/')[2]}").json()
        sent = job["request"]["options"]
        defaults = CompileRequest().to_json()["options"]
        assert {name: value for name, value in sent.items() if value != defaults[name]} == {
            "precision": "int8",
            "precision_error": 0.02,
            "calibration": "static",
            "flavour": "standalone",
            "profile": {"grid": {"n": [1, 64]}},
        }
        assert job["request"]["shapes"] == {"boxes": ["k", "4"]}
        assert job["request"]["samples"] == samples


def test_a_model_that_lacks_a_declaration_says_so_and_blames_no_node(
    chromium: Browser, crowded: Live
) -> None:
    error = {
        "message": "the type of input 'x' is not known",
        "hint": "declare it: --input x=float32[n]",
    }
    node = {"node": "fine", "op": "Relu", "supported": True, "why": None}
    lacking = INSPECTION | {"supported": False, "nodes": [node], "error": error}
    with open_page(chromium) as page:
        page.route(
            "**/v1/inspect*",
            lambda route: route.fulfill(body=json.dumps(lacking), content_type="application/json"),
        )
        page.goto(f"{crowded.url}/#/compile")
        model: Any = {"name": "m.pt", "mimeType": "application/octet-stream", "buffer": b"m"}
        page.set_input_files("input[multiple]", [model])
        expect(page.get_by_text("cannot be compiled as declared")).to_be_visible()
        expect(page.get_by_text("the type of input 'x' is not known")).to_be_visible()
        expect(page.get_by_text("declare it: --input x=float32[n]")).to_be_visible()
        expect(page.get_by_text(re.compile("nodes (that )?cannot be compiled"))).to_have_count(0)


def test_the_reference_names_every_endpoint(chromium: Browser, crowded: Live) -> None:
    described = crowded.http.get("/openapi.json").json()["paths"]
    with open_page(chromium) as page:
        page.goto(f"{crowded.url}/docs")
        expect(page.locator("article")).to_have_count(sum(map(len, described.values())))
        # Some of each method and the largest: of all of them, checks take a quarter of a minute.
        for text, count in (("tenants", 4), ("/v1/compile", 1), ("pins", 3)):
            page.get_by_label("Find an endpoint").fill(text)
            expect(page.locator("article")).to_have_count(count)
            check(page, "reference", full=False)


def test_a_token_shows_what_its_scopes_allow(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with house(tmp_path_factory.mktemp("tenants")) as guarded:
        job = compile_model(guarded.client("a"))
        theirs = compile_model(guarded.client("b"), b"another's")
        with open_page(chromium) as page:
            enter(page, guarded, "a", Scope.READ)
            expect(page.get_by_text(job["id"])).to_be_visible()
            expect(page.get_by_text(theirs["id"])).to_have_count(0)
            expect(page.get_by_role("link", name="Compile")).to_have_count(0)
            page.get_by_role("link", name="m.onnx").click()
            expect(page.get_by_role("link", name="native")).to_have_count(0)
            page.goto(f"{guarded.live.url}/#/compile")
            expect(page.get_by_text("does not let you compile")).to_be_visible()


def enter(page: Page, guarded: House, tenant: str, *scopes: Scope) -> None:
    """Sign in with a new token of the tenant."""
    client = guarded.client(tenant, *scopes)
    page.goto(guarded.live.url)
    page.get_by_label("Token").fill(client.headers["Authorization"].removeprefix("Bearer "))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text(tenant, exact=True)).to_be_visible()


def test_a_build_shows_the_points_that_are_done_and_what_remains(
    chromium: Browser, crowded: Live
) -> None:
    """The log has the newest count of a stage alone."""
    running = f"{7 * STATES.index('running'):016x}"
    steps: list[dict[str, Any]] = [
        {"stage": "verify"},
        {"stage": "verify", "message": "library at 1 of 8 shapes", "done": 1, "total": 8},
        {"stage": "verify", "message": "library at 6 of 8 shapes", "done": 6, "total": 8},
    ]
    steps[-1]["seconds_left"] = 11.6
    with crowded.services.core.writing() as tx:
        start = (EventType.BUILD_STARTED, {"worker": "w", "expected_seconds": 61.2})
        tx.emit(running, "target-00", start, *((EventType.BUILD_STAGE, step) for step in steps))
        tx.connection.execute(
            update(builds)
            .where(builds.c.job_id == running, builds.c.target == "target-00")
            .values(started_at=tx.now - 20)
        )
    with open_page(chromium) as page:
        page.goto(f"{crowded.url}/#/jobs/{running}")
        row = page.get_by_label("Targets", exact=True).locator("li").first
        expect(row).to_contain_text("verify library at 6 of 8 shapes, about 12 s left")
        expect(row).to_contain_text(re.compile(r"\d+ s of about 61 s"))
        log = page.get_by_role("log")
        expect(log).to_contain_text("verify: library at 6 of 8 shapes")
        expect(log).not_to_contain_text("library at 1 of 8 shapes")
        check(page, "running-build", full=False)
