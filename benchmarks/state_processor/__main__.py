from benchmarks.state_processor import PROGRAM

PROGRAM.jars.pin()
