# Spark with the library and its compiled kernels, for master, workers and drivers, and for drivers and executors on
# Kubernetes.
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
RUN /opt/spark/bin/python -m pip install -c constraints/spark.txt --no-build-isolation '.[spark,postgres,s3]'

COPY docker/spark-conf /opt/spark-conf
COPY docker/entrypoint.sh entrypoint.sh
# NUMBA_CACHE_DIR holds the compiled kernels. It must belong to the user that runs them, or numba does not use it. The
# cache is valid for processors like the one of the build; on others each container compiles the kernels once.
ENV NUMBA_CACHE_DIR=/opt/stateferry/kernels \
    SPARK_CONF_DIR=/opt/spark-conf \
    SPARK_NO_DAEMONIZE=1 \
    SPARK_WORKER_DIR=/opt/stateferry/work \
    PYSPARK_PYTHON=/opt/spark/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/spark/bin/python \
    STATEFERRY_HOME=/data \
    PATH=/opt/spark/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
USER 50000
# Outside the folder of the sources, so that Python imports the installed library and compiles its kernels.
WORKDIR /data
RUN python -m stateferry.warm

VOLUME /data
ENTRYPOINT ["tini", "--", "/opt/stateferry/entrypoint.sh"]
CMD ["stateferry", "--help"]
