# Easel as an image: `docker build -t easel .`
# One image for every role; the command says which: `easel up`, `easel api`, `easel worker`, `easel migrate`.

FROM python:3.13-slim AS build
WORKDIR /build
RUN python -m venv /opt/easel
ENV PATH=/opt/easel/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# First what seldom changes. Every file is checked against its hash.
COPY requirements/runtime.txt requirements/build.txt requirements/
RUN pip install --require-hashes --requirement requirements/runtime.txt --requirement requirements/build.txt
COPY pyproject.toml LICENSE ./
COPY requirements/runtime.in requirements/
COPY src src
RUN pip install --no-deps --no-build-isolation --no-index . \
    && pip uninstall --yes setuptools pip

FROM python:3.13-slim
# What isolates commands, and what they most often need. Where the container may not make namespaces, Bash stays off and says so.
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap git && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --no-create-home --home-dir /data easel \
    && install --directory --owner easel --group easel --mode 0700 /data
COPY --from=build /opt/easel /opt/easel
ENV PATH=/opt/easel/bin:$PATH PYTHONUNBUFFERED=1 EASEL_DATA=/data
USER easel
WORKDIR /data
VOLUME /data
EXPOSE 8800
STOPSIGNAL SIGTERM
# An API listens here by itself, a worker when EASEL_WORKER_PORT=8800.
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8800/readyz', timeout=2)"]
CMD ["easel", "up", "--host", "0.0.0.0", "--port", "8800"]
