"""The dashboard and the alert rules name metrics that exist, parse, and fire when they should."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from service.observability.metrics import JobCollector, WorkerMetrics
from service.observability.storage import StoreCollector
from tests.service.live import live

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docker" / "monitoring"
RULES: dict[str, Any] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
OPERATIONS = (ROOT / "docs" / "howto" / "run-the-service.md").read_text()
NAME = re.compile(r"\brelaxd_\w+")
LABELS = re.compile(r"(relaxd_\w+)\{([^}]*)\}")

ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian's prometheus)"
)


def dashboard_queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


QUERIES = [*(rule["expr"] for rule in ALERTS), *dashboard_queries()]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Every sample that a service serves, by name, and the names of its labels."""
    folder = tmp_path_factory.mktemp("metrics")
    with live(folder, store_quota_mb=100) as api:
        metrics: CollectorRegistry = api.services.metrics
        for collector in (JobCollector, StoreCollector):
            metrics.register(collector(api.services.core))
        WorkerMetrics(metrics).seconds.labels("native", "succeeded").observe(1)
        api.http.get("/v1/targets")
        text = api.http.get("/metrics").text
    result: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            result.setdefault(sample.name, set()).update(sample.labels)
    return result


@pytest.mark.parametrize("query", QUERIES)
def test_every_metric_of_a_query_exists(query: str, samples: dict[str, set[str]]) -> None:
    assert set(NAME.findall(query)) <= samples.keys()
    for name, matchers in LABELS.findall(query):
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= samples[name]


def test_the_page_lists_every_metric_of_ours(samples: dict[str, set[str]]) -> None:
    suffix = re.compile(r"_(bucket|count|sum|created)$")
    ours = {suffix.sub("", name) for name in samples if name.startswith("relaxd_")}
    assert {name for name in ours if name not in OPERATIONS} == set()


def test_every_alert_says_what_to_do() -> None:
    for rule in ALERTS:
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in {"critical", "warning"}


def test_every_panel_has_an_id_of_its_own_and_a_position_on_the_grid() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        offset = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(offset["x"], offset["x"] + offset["w"])
            for y in range(offset["y"], offset["y"] + offset["h"])
        }
        assert offset["x"] + offset["w"] <= 24
        assert not cells & taken
        taken |= cells


@promtool
def test_the_rules_parse() -> None:
    command = ["promtool", "check", "rules", str(FOLDER / "alerts.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@promtool
def test_the_dashboards_queries_parse(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(dashboard_queries())
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    command = ["promtool", "check", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


QUEUED, RUNNING = 'relaxd_builds{state="queued"}', 'relaxd_builds{state="running"}'
ENDED = "relaxd_builds_ended_total"
ANSWERED = "relaxd_http_requests_total"
SLOW = 'relaxd_http_request_seconds_bucket{method="POST",route="/v1/jobs",le='

# Of each rule: series at which it fires, and series at which it does not, one value a minute.
CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "RelaxdDown": ({'up{job="relaxd"}': "0x200"}, {'up{job="relaxd"}': "1x200"}),
    "RelaxdNoWorkers": (
        {"relaxd_workers": "0x200", QUEUED: "1x200"},
        {"relaxd_workers": "0x200", QUEUED: "0x200"},
    ),
    "RelaxdQueueOld": (
        {"relaxd_queue_oldest_seconds": "0+60x200"},
        {"relaxd_queue_oldest_seconds": "1700x200"},
    ),
    # Two processes serve the database's counts: they are no more builds for that.
    "RelaxdBuildsFail": (
        {
            f'{ENDED}{{ending="failed",instance="a"}}': "0+1x200",
            f'{ENDED}{{ending="failed",instance="b"}}': "0+1x200",
            f'{ENDED}{{ending="succeeded",instance="a"}}': "0+0.5x200",
        },
        {
            f'{ENDED}{{ending="failed",instance="a"}}': "0+1x200",
            f'{ENDED}{{ending="failed",instance="b"}}': "0+1x200",
            f'{ENDED}{{ending="succeeded",instance="a"}}': "0+1.5x200",
        },
    ),
    "RelaxdWorkersLost": (
        {"relaxd_builds_reclaimed_total": "0+0.1x200"},
        {"relaxd_builds_reclaimed_total": "0+0.02x200"},
    ),
    "RelaxdDoorbellsLost": (
        {"relaxd_doorbells_repeated_total": "0+30x200"},
        {"relaxd_doorbells_repeated_total": "0+6x200"},
    ),
    "RelaxdServerErrors": (
        {f'{ANSWERED}{{status="503"}}': "0+1x200", f'{ANSWERED}{{status="200"}}': "0+10x200"},
        {f'{ANSWERED}{{status="503"}}': "0+1x200", f'{ANSWERED}{{status="200"}}': "0+30x200"},
    ),
    "RelaxdSubmitSlow": (
        {f'{SLOW}"1.0"}}': "0+9x200", f'{SLOW}"10.0"}}': "0+10x200", f'{SLOW}"+Inf"}}': "0+10x200"},
        {f'{SLOW}"1.0"}}': "0+10x200", f'{SLOW}"+Inf"}}': "0+10x200"},
    ),
    "RelaxdStoreFull": (
        {"relaxd_store_bytes": "95x200", "relaxd_store_quota_bytes": "100x200"},
        {"relaxd_store_bytes": "85x200", "relaxd_store_quota_bytes": "100x200"},
    ),
    "RelaxdBlobsCorrupt": (
        {"relaxd_store_quarantined_blobs": "1x200"},
        {"relaxd_store_quarantined_blobs": "0x200"},
    ),
    # Times begin at 0: the first collection never ran, the second was an hour ago at the most.
    "RelaxdGarbageKept": (
        {"relaxd_gc_last_run_timestamp_seconds": "0x600"},
        {"relaxd_gc_last_run_timestamp_seconds": "0+60x600"},
    ),
}


@promtool
def test_every_rule_fires_at_its_trouble_and_only_then(tmp_path: Path) -> None:
    assert set(CASES) == {rule["alert"] for rule in ALERTS}
    tests = [case for name in CASES for case in _cases(name)]
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(FOLDER / "alerts.yaml")], "tests": tests}))
    command = ["promtool", "test", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _cases(name: str) -> Iterator[dict[str, Any]]:
    minutes = 500 if name == "RelaxdGarbageKept" else 180
    for series, expected in zip(
        CASES[name], ([{"labels": f'{{alertname="{name}"}}', "value": 1}], []), strict=True
    ):
        yield {
            "interval": "1m",
            "input_series": [{"series": key, "values": value} for key, value in series.items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": f"{minutes}m",
                    "exp_samples": expected,
                }
            ],
        }
