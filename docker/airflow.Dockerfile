# Airflow with the DAGs and plugins, on top of the Spark image: the steps' drivers run beside the scheduler, and only
# their tasks run on the Spark workers. The image has two Python environments, because Airflow's Spark provider brings a
# pyspark of its own.
#
#   docker build -f docker/airflow.Dockerfile -t stateferry-airflow:0.1.0 .
ARG SPARK_IMAGE=stateferry-spark:0.1.0
FROM ${SPARK_IMAGE} AS build

# This stage runs nothing but the build.
# hadolint ignore=DL3002
USER 0
RUN apt-get update \
 && apt-get install -y --no-install-recommends binutils=2.*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1
WORKDIR /build
COPY constraints/uv_like_pip.py constraints/uv_like_pip.py
COPY constraints/hashes constraints/hashes
RUN python3 -m venv /opt/airflow/venv \
 && sed -n '/^uv==/,/[^\\]$/p' constraints/hashes/spark.txt > uv.txt \
 && /opt/airflow/venv/bin/python -m pip install --require-hashes -r uv.txt \
 && /opt/airflow/venv/bin/python constraints/uv_like_pip.py pip install --python=/opt/airflow/venv \
      -c constraints/hashes/airflow.txt -c constraints/hashes/kubernetes.txt \
      setuptools wheel apache-airflow apache-airflow-providers-apache-spark \
      apache-airflow-providers-cncf-kubernetes apache-airflow-providers-standard \
      asyncpg hdfs-native psycopg2-binary 'psycopg[binary]'
COPY pyproject.toml README.md LICENSE ./
COPY flinkstate flinkstate
COPY stateferry stateferry
COPY spark_jobs spark_jobs
COPY plugins plugins
# Airflow uses only the part of the library that reads plans, runs and reports, and has the packages for that already.
# The steps are submitted to the other environment's Spark, so the provider's client of Spark Connect isn't used; and
# `stateferry` is the other environment's command, which has all that it needs.
RUN /opt/airflow/venv/bin/python constraints/uv_like_pip.py pip install --python=/opt/airflow/venv \
      --no-deps --no-build-isolation . \
 && /opt/airflow/venv/bin/python -m pip uninstall -y pyspark-client grpcio-status pandas zstandard \
 && rm /opt/airflow/venv/bin/stateferry
COPY docker/slim.sh slim.sh
RUN ./slim.sh /opt/airflow/venv /opt/spark

FROM ${SPARK_IMAGE}

USER 0
COPY --from=build /opt/airflow/venv /opt/airflow/venv
COPY dags /opt/airflow/dags
# The probes of Airflow's Helm chart call /entrypoint.
RUN install -d -o ferry -g ferry /opt/airflow/home \
 && ln -s /opt/airflow/venv/bin/airflow /usr/local/bin/airflow \
 && ln -s /opt/stateferry/entrypoint.sh /entrypoint

ENV AIRFLOW_HOME=/opt/airflow/home \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/airflow/dags \
    AIRFLOW__CORE__LOAD_EXAMPLES=False \
    AIRFLOW__CORE__EXECUTOR=LocalExecutor \
    AIRFLOW__CORE__DEFAULT_POOL_TASK_SLOT_COUNT=28 \
    AIRFLOW__USAGE_DATA_COLLECTION__ENABLED=False \
    STATEFERRY_SPARK_JOBS=/opt/spark/lib/python3.11/site-packages/stateferry/spark_jobs \
    PATH=/opt/airflow/venv/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/spark/bin:/opt/java/bin
WORKDIR /opt/airflow/home
USER 50000
CMD ["airflow", "version"]
