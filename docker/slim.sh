#!/bin/bash
# Removes from a Python environment of an image what is not used at run time: slim.sh ENVIRONMENT [OTHER]
# With another environment, packages that both have file for file become links to the other one's.
set -euo pipefail

packages=lib/python3.11/site-packages
cd "$1/$packages"

# The tests of packages, and what is only needed to compile against them.
find . -type d -name tests -prune -exec rm -r {} +
rm -rf pyarrow/include
# Arrow's calls to other servers.
rm -f pyarrow/{libarrow,libarrow_python,}_flight.*
# Copies of its libraries under names that only compilers ask for.
rm -f pyarrow/libarrow_python{,_parquet_encryption}.so pyarrow/*.so.*.*.*
# Descriptions of AWS's services, of which only the store and what gives credentials for it are asked.
if [ -d botocore/data ]; then
  find botocore/data -mindepth 1 -maxdepth 1 -type d -not -name s3 -not -name 'sso*' -not -name sts -exec rm -r {} +
fi

# The asynchronous client that the Kubernetes provider doesn't use: it has one of its own.
rm -rf kubernetes/aio

# Jars of parts of Spark that no step uses. Steps, the Spark data source and Spark SQL do without them.
if [ -d pyspark/jars ]; then
  cd pyspark/jars
  # Spark Connect and its shell, and Scala's shell.
  rm -r connect-repl
  rm spark-connect_* spark-repl_* scala-compiler-* jline-*
  # Machine learning and graphs.
  rm spark-mllib_* spark-graphx_* breeze* spire* algebra_* cats-kernel_* JTransforms-* arpack* lapack-* blas-*
  # Hive: its metastore, its database and its server. ORC files need hive-storage-api.
  rm spark-hive* hive-{beeline,cli,common,exec,jdbc,metastore,serde,service-rpc,shims}* datanucleus-* derby*
  # The state of streaming queries.
  rm rocksdbjni-*
  # What is for other systems than Linux.
  rm netty-*-{osx,windows}-*
  cd ../..
fi

# What debuggers read. Libraries in *.libs were altered so that strip would break them.
find . -name '*.so*' -type f -not -path '*.libs/*' -exec strip --strip-unneeded {} +

if [ $# -gt 1 ]; then
  for package in */; do
    package=${package%/}
    other="$2/$packages/$package"
    if [ "$(du -sk "$package" | cut -f 1)" -gt 1024 ] && diff -rq --exclude=__pycache__ "$package" "$other" >/dev/null 2>&1; then
      rm -r "$package"
      ln -s "$other" "$package"
    fi
  done
fi

# uv's, which everybody may write.
rm -f "$1/.lock"

# The last, as it removes itself.
"$1/bin/python" -m pip uninstall -q -y setuptools uv wheel pip
