"""Files and folders on local disks, object stores and HDFS."""
