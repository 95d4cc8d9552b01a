"""What every part of flinkstate uses."""
