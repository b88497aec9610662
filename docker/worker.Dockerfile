# A worker: claims builds and compiles each in a child process of its own.
ARG PYTHON=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

FROM $PYTHON AS build
WORKDIR /src
COPY requirements/worker.txt requirements/
RUN python -m venv /opt/relaxd && /opt/relaxd/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement requirements/worker.txt
COPY pyproject.toml README.md LICENSE ./
COPY relaxd relaxd
COPY artifacts artifacts
COPY compiler compiler
COPY service service
COPY wheels wheels
COPY tools/image_sbom.py tools/
RUN /opt/relaxd/bin/pip install --no-cache-dir --no-deps --no-build-isolation . ./wheels/server \
    && /opt/relaxd/bin/python -P -m compiler.runtimes fetch \
    && /opt/relaxd/bin/pip uninstall --yes --quiet setuptools pip \
    && install --directory /opt/relaxd/share \
    && /opt/relaxd/bin/python tools/image_sbom.py relaxd-worker > /opt/relaxd/share/sbom.spdx.json

FROM $PYTHON
ARG RELAXD_REVISION=unknown
LABEL org.opencontainers.image.title="relaxd-worker" \
    org.opencontainers.image.description="Claims builds and compiles each in a sandboxed child process" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.revision=$RELAXD_REVISION \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.base.name="python:3.11.14-slim-bookworm" \
    org.relaxd.sbom="/opt/relaxd/share/sbom.spdx.json"
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/relaxd relaxd \
    && install --directory --owner relaxd --group relaxd \
        /var/lib/relaxd /var/lib/relaxd/tmp /var/cache/relaxd
COPY --from=build /opt/relaxd /opt/relaxd
ENV PATH=/opt/relaxd/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    RELAXD_DATA_DIR=/var/lib/relaxd \
    RELAXD_WORKER_METRICS_PORT=9484 \
    TMPDIR=/var/lib/relaxd/tmp \
    RELAXD_CACHE_DIR=/var/cache/relaxd
USER 10001:10001
VOLUME ["/var/lib/relaxd", "/var/cache/relaxd"]
EXPOSE 9484
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9484/metrics', timeout=2)"]
ENTRYPOINT ["relaxd"]
CMD ["worker"]
