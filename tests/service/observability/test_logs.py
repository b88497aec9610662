import json
import subprocess
import sys

PROGRAM = """
import logging, structlog
from service.observability import logs
logs.configure("INFO")
with structlog.contextvars.bound_contextvars(job_id="j1"):
    structlog.get_logger("relaxd.test").info("hello", number=1)
    logging.getLogger("foreign").warning("from %s", "elsewhere")
    try:
        1 / 0
    except ZeroDivisionError:
        structlog.get_logger("relaxd.test").exception("oops")
structlog.get_logger("relaxd.test").debug("too fine")
"""


def test_each_line_is_json_with_the_job(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    hello, foreign, oops = [json.loads(line) for line in done.stderr.splitlines()]
    assert (hello["event"], hello["job_id"], hello["level"], hello["logger"], hello["number"]) == (
        "hello",
        "j1",
        "info",
        "relaxd.test",
        1,
    )
    assert (foreign["event"], foreign["job_id"], foreign["logger"]) == (
        "from elsewhere",
        "j1",
        "foreign",
    )
    assert oops["exception"][0]["exc_type"] == "ZeroDivisionError"


SECRETIVE = """
import logging, structlog
from service.observability import logs
logs.configure("INFO", ["t0ken"])
def fail(headers, depth):
    body = headers["Authorization"] * 1000
    return fail(headers, depth - 1) if depth else 1 / 0
try:
    fail({"Authorization": "hidden local"}, 100)
except ZeroDivisionError as error:
    logging.getLogger("uvicorn.error").error("broken", exc_info=error)
    structlog.get_logger("relaxd.test").exception("oops", url="redis://:t0ken@host/0")
logging.getLogger("foreign").warning("sent %s", {"a": "t0ken"})
structlog.get_logger("relaxd.test").info("x" * 100_000, parts=["t0ken", {"b": "t0ken"}])
"""


def test_lines_show_no_local_variables_and_no_secrets_and_stay_short(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SECRETIVE], capture_output=True, text=True, check=True
    )
    lines = done.stderr.splitlines()
    assert len(lines) == 4
    assert "hidden local" not in done.stderr
    assert "t0ken" not in done.stderr
    assert max(map(len, lines)) < 12_000
    assert json.loads(lines[1])["exception"][0]["frames"][-1]["name"] == "fail"
    assert json.loads(lines[3])["parts"] == ["***", {"b": "***"}]
