# A worker: claims builds and compiles each in a child process of its own.
FROM python:3.11.14-slim-bookworm AS build
WORKDIR /src
COPY requirements/worker.txt requirements/
RUN python -m venv /opt/relaxd && /opt/relaxd/bin/pip install --no-cache-dir --no-deps --requirement requirements/worker.txt
COPY pyproject.toml README.md LICENSE ./
COPY relaxd relaxd
COPY artifacts artifacts
COPY compiler compiler
COPY service service
RUN /opt/relaxd/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/relaxd/bin/python -P -m compiler.runtimes fetch \
    && RELAXD_CACHE_DIR=/opt/cache /opt/relaxd/bin/python -P -m compiler.runtimes warm

FROM python:3.11.14-slim-bookworm
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/relaxd relaxd \
    && install --directory --owner relaxd --group relaxd /var/lib/relaxd /var/lib/relaxd/tmp
COPY --from=build /opt/relaxd /opt/relaxd
COPY --from=build --chown=relaxd:relaxd /opt/cache /var/lib/relaxd/cache
ENV PATH=/opt/relaxd/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    RELAXD_DATA_DIR=/var/lib/relaxd \
    RELAXD_WORKER_METRICS_PORT=9484 \
    TMPDIR=/var/lib/relaxd/tmp \
    RELAXD_CACHE_DIR=/var/lib/relaxd/cache
USER 10001:10001
VOLUME /var/lib/relaxd
EXPOSE 9484
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9484/metrics', timeout=2)"]
ENTRYPOINT ["relaxd"]
CMD ["worker"]
