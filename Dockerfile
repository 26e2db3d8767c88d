# The service as an image. BASE may be any Debian image (glibc) with Python 3.11 or newer and
# its venv module. deploy/README.md explains how to build it with a package index of your own,
# and how to run it.
ARG BASE=python:3.11-slim-bookworm

# The libraries, those of the extras too but for blosc2, in a layer that changes only with the lock.
FROM ${BASE} AS libraries
WORKDIR /src
COPY deploy/requirements-image.lock deploy/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/pip \
    && python3 -m venv --without-pip /opt/thalweg \
    && /opt/pip/bin/pip --python /opt/thalweg/bin/python install --quiet --no-compile \
        --require-hashes -r deploy/requirements-image.lock \
    && /opt/thalweg/bin/python -m compileall -q -x '/tests/' \
        --invalidation-mode unchecked-hash /opt/thalweg/lib

# The app, its kernels, and the client, by which models of Oasis upload to a service.
FROM libraries AS app
COPY deploy/requirements-build.lock deploy/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=cache,target=/root/.cache/pip \
    /opt/pip/bin/pip install --quiet --require-hashes -r deploy/requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY core core
COPY app app
# The app is installed under /app, as a layer apart from the libraries, and copied beside them
# to compile its kernels. Root owns the kernels and everyone can read them: the engine loads no
# build that others could have written.
RUN /opt/pip/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . ./app/client \
    && /opt/pip/bin/pip --python /opt/thalweg/bin/python install --quiet --no-compile \
        --no-deps --no-index --no-warn-script-location --root /app /wheels/*.whl \
    && /opt/thalweg/bin/python -m compileall -q -s /app \
        --invalidation-mode unchecked-hash /app/opt/thalweg/lib \
    && cp -a /app/. / \
    && THALWEG_KERNEL_CACHE=/app/opt/thalweg/kernels /opt/thalweg/bin/thalweg-server warmup --portable \
    && chmod -R u=rwX,go=rX /app

# The documentation, whose pictures the app draws. It is apart, so that its words change one layer.
FROM app AS docs
COPY deploy/requirements-docs.lock deploy/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=cache,target=/root/.cache/pip \
    /opt/pip/bin/pip --python /opt/thalweg/bin/python install --quiet --no-compile \
        --require-hashes -r deploy/requirements-docs.lock
COPY CONTRIBUTING.md CHANGELOG.md ./
COPY deploy/docs deploy/docs
COPY deploy/LIMITS.md deploy/README.md deploy/SECURITY.md deploy/scale.md deploy/
COPY deploy/kubernetes/README.md deploy/kubernetes/
RUN THALWEG_KERNEL_CACHE=/app/opt/thalweg/kernels /opt/thalweg/bin/python -m deploy.docs

FROM ${BASE}
COPY --from=libraries /opt/thalweg /opt/thalweg
COPY --from=app /app/opt/thalweg /opt/thalweg
COPY --from=docs /src/app/http/site.zip /opt/thalweg/docs.zip
# Group 0 is the usual group of a user without an entry in the image's passwd file.
RUN install -d -o 10001 -g 0 -m 0770 /data

# A CPU below the portable levels compiles the kernels at the first start, and stores them below
# XDG_CACHE_HOME or, if that is not writable, /tmp.
ENV PATH=/opt/thalweg/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    THALWEG_HOST=0.0.0.0 \
    THALWEG_PORT=8000 \
    THALWEG_DATA_DIR=/data \
    THALWEG_KERNEL_CACHE=/opt/thalweg/kernels \
    THALWEG_DOCS_SITE=/opt/thalweg/docs.zip \
    XDG_CACHE_HOME=/data/.cache

ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Thalweg" \
      org.opencontainers.image.description="Loss streams, dataset tiles and training batches in exact, resumable steps, over HTTP" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

USER 10001:10001
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
# Health, not readiness: a server that drains must not be taken for a broken one.
HEALTHCHECK --interval=15s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-ISc", "import os; from http.client import HTTPConnection; c = HTTPConnection('127.0.0.1', int(os.environ['THALWEG_PORT']), timeout=2); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["thalweg-server"]
CMD ["serve"]
