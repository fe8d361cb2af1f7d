# A commonplace server, built from this checkout with the versions of constraints.txt:
#     docker build --tag commonplace-memory:0.2.0 .
# The embedding model is inside, so a running container needs no network. docs/operations/service.md tells how to run it.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/commonplace \
    && /opt/commonplace/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir \
        --constraint constraints.txt '.[postgres,server,tracing]'
# Each file is checked by its hash.
RUN COMMONPLACE_MODELS=/opt/commonplace/models /opt/commonplace/bin/commonplace model pull

FROM python:3.11-slim
# The number is fixed, so that Kubernetes can see that it is not root, and volumes keep their owner.
RUN useradd --no-log-init --uid 10001 --user-group --no-create-home --home-dir /nonexistent commonplace \
    && install --directory --owner=commonplace --group=commonplace --mode=700 /data
COPY --from=build /opt/commonplace /opt/commonplace
ENV PATH=/opt/commonplace/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    COMMONPLACE_MODELS=/opt/commonplace/models \
    COMMONPLACE_HOST=0.0.0.0 \
    COMMONPLACE_PORT=8765 \
    DATABASE_URL=/data/memory.db
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8765
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as web; web.urlopen(f\"http://127.0.0.1:{os.environ['COMMONPLACE_PORT']}/healthz\", timeout=4)"]
ENTRYPOINT ["commonplace"]
CMD ["serve"]
