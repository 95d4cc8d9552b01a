"""Values by the serializers of flink-scala, and as which values of Flink's own serializers they are written."""
