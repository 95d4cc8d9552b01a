#!/bin/bash
# On Kubernetes, Spark starts its image with the arguments `driver ...` or `executor`, and gives the rest in the
# environment. Other arguments are a command to run.
set -euo pipefail

# numba uses compiled kernels only if it may write to their folder. If the root file system is read-only, it gets a copy.
if [ -d "${NUMBA_CACHE_DIR:-}" ] && [ ! -w "$NUMBA_CACHE_DIR" ]; then
  mkdir -p /tmp/kernels
  cp -R --preserve=timestamps "$NUMBA_CACHE_DIR/." /tmp/kernels
  export NUMBA_CACHE_DIR=/tmp/kernels
fi

case "${1:-}" in
  driver)
    set -- spark-submit --deploy-mode client --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "${@:2}"
    ;;
  executor)
    options=()
    for name in $(compgen -v SPARK_JAVA_OPT_); do options+=("${!name}"); done
    jars=$("$PYSPARK_PYTHON" -c 'import pyspark; print(pyspark.__path__[0])')/jars
    set -- java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CONF_DIR:-}:$jars/*" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
esac
exec "$@"
