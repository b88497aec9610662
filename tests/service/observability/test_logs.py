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
