"""A worker process as `python -m service.workers` is one, except that its compile process is
`fake_child`, and that it prints where its threads are when it gets SIGUSR1.
"""

import faulthandler
import signal
import sys

from service.adapters.compiler import ChildCompiler
from service.bootstrap import build
from service.observability import logs
from service.settings import Settings
from service.workers.main import serve

if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    settings = Settings()
    logs.configure(settings.log_level)
    compiler = ChildCompiler(
        command=(sys.executable, "-m", "tests.service.fake_child"),
        toolchain=lambda: {"pipeline": "fake"},
    )
    services = build(settings, compiler=compiler)
    try:
        sys.exit(serve(services, concurrency=2))
    finally:
        services.close()
