# Spark with the library and its compiled kernels, for master, workers and drivers, and for drivers and executors on
# Kubernetes.
#
#   docker build -f docker/spark.Dockerfile -t stateferry-spark:0.1.0 .
FROM python:3.11.15-slim-bookworm@sha256:d29f48a31a8b408ed19272ca1e7b10ebae13b240a27e862d3d4217c528e2e0c3 AS base

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update \
 && apt-get install -y --no-install-recommends procps=2:4.* tini=0.19.* \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 50000 --create-home --shell /usr/sbin/nologin ferry \
 && install -d -o ferry -g ferry /data /opt/stateferry/kernels

# What is only needed to build stays in this stage.
FROM base AS build

# Java's package doesn't install without a folder for its manual pages.
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends binutils=2.* openjdk-17-jdk-headless=17.*
# A Java of the modules that Spark and Hadoop can use: half the size of Debian's, and it needs no other packages.
RUN jlink --output /opt/java --compress=2 --no-header-files --no-man-pages --add-modules \
      java.se,jdk.charsets,jdk.crypto.ec,jdk.incubator.vector,jdk.jfr,jdk.management.agent,jdk.naming.dns,jdk.net,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs \
 && cp --dereference --remove-destination /etc/ssl/certs/java/cacerts /opt/java/lib/security/cacerts \
 && /opt/java/bin/java -Xshare:dump

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1
WORKDIR /build
COPY constraints/uv_like_pip.py constraints/uv_like_pip.py
COPY constraints/hashes constraints/hashes
# A file of a package that has another hash is refused. pip takes no hashes from constraints: it installs uv, which does.
# There is no wheel of pyspark. It is made once, before the sources, and isn't compressed, as it is unpacked at once.
RUN python -m venv /opt/spark \
 && sed -n '/^uv==/,/[^\\]$/p' constraints/hashes/spark.txt > uv.txt \
 && /opt/spark/bin/python -m pip install --require-hashes -r uv.txt \
 && /opt/spark/bin/python constraints/uv_like_pip.py pip install --python=/opt/spark -c constraints/hashes/spark.txt \
      setuptools wheel \
 && /opt/spark/bin/python constraints/uv_like_pip.py pip install --python=/opt/spark -c constraints/hashes/spark.txt \
      --no-build-isolation --config-setting=--build-option=--compression=stored pyspark
COPY pyproject.toml README.md LICENSE ./
COPY flinkstate flinkstate
COPY stateferry stateferry
COPY spark_jobs spark_jobs
RUN /opt/spark/bin/python constraints/uv_like_pip.py pip install --python=/opt/spark -c constraints/hashes/spark.txt \
      --no-build-isolation '.[spark,postgres,s3,hdfs]'
COPY docker/slim.sh slim.sh
RUN ./slim.sh /opt/spark

FROM base

COPY --from=build /opt/java /opt/java
COPY --from=build /opt/spark /opt/spark
COPY docker/spark-conf /opt/spark-conf
COPY docker/entrypoint.sh /opt/stateferry/entrypoint.sh
# NUMBA_CACHE_DIR holds the compiled kernels. It must belong to the user that runs them, or numba does not use it. The
# cache is valid for processors like the one of the build; on others each container compiles the kernels once.
ENV JAVA_HOME=/opt/java \
    NUMBA_CACHE_DIR=/opt/stateferry/kernels \
    SPARK_CONF_DIR=/opt/spark-conf \
    SPARK_NO_DAEMONIZE=1 \
    SPARK_WORKER_DIR=/tmp/spark-work \
    PYSPARK_PYTHON=/opt/spark/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/spark/bin/python \
    STATEFERRY_HOME=/data \
    PATH=/opt/spark/bin:/opt/java/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
USER 50000
WORKDIR /data
RUN python -m stateferry.warm

VOLUME /data
ENTRYPOINT ["tini", "--", "/opt/stateferry/entrypoint.sh"]
CMD ["stateferry", "--help"]
