# The service in an image. Any Debian image (glibc) that has Python 3.11 or newer and its
# venv module will do as BASE. How to build it behind a package index of your own, and what
# may be set when it runs: deploy/README.md.
ARG BASE=python:3.11-slim-bookworm

# The libraries: a layer that changes only with the lock.
FROM ${BASE} AS libraries
WORKDIR /src
COPY deploy/requirements.lock deploy/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/pip \
    && python3 -m venv --without-pip /opt/thalweg \
    && /opt/pip/bin/pip --python /opt/thalweg/bin/python install --quiet --no-compile \
        --require-hashes -r deploy/requirements.lock \
    && /opt/thalweg/bin/python -m compileall -q -x '/tests/' \
        --invalidation-mode unchecked-hash /opt/thalweg/lib

# The app and its kernels.
FROM libraries AS app
COPY deploy/requirements-build.lock deploy/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=cache,target=/root/.cache/pip \
    /opt/pip/bin/pip install --quiet --require-hashes -r deploy/requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY core core
COPY app app
# The app goes to /app/opt/thalweg, apart from the libraries, and beside them to be run.
# Kernels belong to root and are read by everyone: a build that others could have written
# would not be loaded.
RUN /opt/pip/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/pip/bin/pip --python /opt/thalweg/bin/python install --quiet --no-compile \
        --no-deps --no-index --no-warn-script-location --root /app /wheels/*.whl \
    && /opt/thalweg/bin/python -m compileall -q -s /app \
        --invalidation-mode unchecked-hash /app/opt/thalweg/lib \
    && cp -a /app/. / \
    && THALWEG_KERNEL_CACHE=/app/opt/thalweg/kernels /opt/thalweg/bin/thalweg-server warmup \
    && chmod -R u=rwX,go=rX /app

FROM ${BASE}
COPY --from=libraries /opt/thalweg /opt/thalweg
COPY --from=app /app/opt/thalweg /opt/thalweg
# Group 0 is what a user without an entry in the image's passwd file usually gets.
RUN install -d -o 10001 -g 0 -m 0770 /data

# A CPU unlike the one that built the image needs kernels of its own: they are compiled at
# the first start and kept below XDG_CACHE_HOME or, where that cannot be written, /tmp.
ENV PATH=/opt/thalweg/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    THALWEG_HOST=0.0.0.0 \
    THALWEG_PORT=8000 \
    THALWEG_DATA_DIR=/data \
    THALWEG_KERNEL_CACHE=/opt/thalweg/kernels \
    XDG_CACHE_HOME=/data/.cache

ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Thalweg" \
      org.opencontainers.image.description="Event reports from catastrophe model loss streams, over HTTP" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

USER 10001:10001
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
# Alive, not ready: a server that drains must not be taken for a broken one.
HEALTHCHECK --interval=15s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-ISc", "import os; from http.client import HTTPConnection; c = HTTPConnection('127.0.0.1', int(os.environ['THALWEG_PORT']), timeout=2); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["thalweg-server"]
CMD ["serve"]
