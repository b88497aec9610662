"""A worker process whose compiler writes a small bundle at once, in place of compiling."""

import sys

from service.bootstrap import build
from service.observability import logs
from service.settings import Settings
from service.workers.main import serve
from tests.service.fakes import FakeCompiler

if __name__ == "__main__":
    settings = Settings()
    logs.configure("WARNING")
    services = build(settings, compiler=FakeCompiler())
    try:
        sys.exit(serve(services, concurrency=int(sys.argv[1])))
    finally:
        services.close()
