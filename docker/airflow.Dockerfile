# Airflow with the DAGs and plugins, on top of the Spark image: the steps' drivers run beside the scheduler, and only
# their tasks run on the Spark workers. The image has two Python environments, because Airflow's Spark provider brings a
# pyspark of its own.
#
#   docker build -f docker/airflow.Dockerfile -t stateferry-airflow:0.1.0 .
ARG SPARK_IMAGE=stateferry-spark:0.1.0
FROM ${SPARK_IMAGE}

USER 0
WORKDIR /opt/stateferry
COPY constraints/airflow.txt constraints/airflow.txt
RUN python3 -m venv /opt/airflow/venv \
 && /opt/airflow/venv/bin/python -m pip install -c constraints/airflow.txt setuptools wheel \
      apache-airflow apache-airflow-providers-apache-spark apache-airflow-providers-standard \
      asyncpg psycopg2-binary 'psycopg[binary]'
COPY dags /opt/airflow/dags
COPY plugins plugins
# Airflow uses only the part of the library that reads plans, runs and reports, and has the packages for that already.
RUN /opt/airflow/venv/bin/python -m pip install --no-deps --no-build-isolation . \
 && install -d -o ferry -g ferry /opt/airflow/home \
 && ln -s /opt/airflow/venv/bin/airflow /usr/local/bin/airflow

ENV AIRFLOW_HOME=/opt/airflow/home \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/airflow/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/stateferry/plugins \
    AIRFLOW__CORE__LOAD_EXAMPLES=False \
    AIRFLOW__CORE__EXECUTOR=LocalExecutor \
    AIRFLOW__USAGE_DATA_COLLECTION__ENABLED=False \
    STATEFERRY_SPARK_JOBS=/opt/stateferry/spark_jobs \
    PATH=/opt/airflow/venv/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/spark/bin
WORKDIR /opt/airflow/home
USER 50000
CMD ["airflow", "version"]
