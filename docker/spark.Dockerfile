# Spark with the library and its compiled kernels: master, workers and drivers, on Kubernetes drivers and executors.
#
#   docker build -f docker/spark.Dockerfile -t stateferry-spark:0.1.0 .
FROM python:3.11.11-slim-bookworm

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless=17.* procps=2:4.* tini=0.19.* \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 50000 --create-home --shell /usr/sbin/nologin ferry \
 && install -d -o ferry -g ferry /data /opt/stateferry /opt/stateferry/kernels /opt/stateferry/work

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /opt/stateferry
COPY constraints/spark.txt constraints/spark.txt
RUN python -m venv /opt/spark \
 && /opt/spark/bin/python -m pip install -c constraints/spark.txt setuptools wheel
COPY pyproject.toml README.md LICENSE ./
COPY stateferry stateferry
COPY spark_jobs spark_jobs
RUN /opt/spark/bin/python -m pip install -c constraints/spark.txt --no-build-isolation '.[spark,postgres]'

COPY docker/spark-conf /opt/spark-conf
COPY docker/entrypoint.sh entrypoint.sh
# Of the library's kernels' machine code: it belongs to who runs it, or numba would not use it. A cache is good for
# processors like the one it was made on; elsewhere each container compiles for itself, once.
ENV NUMBA_CACHE_DIR=/opt/stateferry/kernels \
    SPARK_CONF_DIR=/opt/spark-conf \
    SPARK_NO_DAEMONIZE=1 \
    SPARK_WORKER_DIR=/opt/stateferry/work \
    PYSPARK_PYTHON=/opt/spark/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/spark/bin/python \
    STATEFERRY_HOME=/data \
    PATH=/opt/spark/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
USER 50000
# Not where the sources are: kernels are to be those of the installed library.
WORKDIR /data
RUN python -m stateferry.warm

VOLUME /data
ENTRYPOINT ["tini", "--", "/opt/stateferry/entrypoint.sh"]
CMD ["stateferry", "--help"]
