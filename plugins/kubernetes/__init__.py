"""The Flink Kubernetes Operator's resources, over plain HTTP to the API server of an Airflow connection."""
