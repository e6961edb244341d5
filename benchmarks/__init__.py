"""What a turn costs on this machine: the server between a scripted model and scripted tools.

`python -m benchmarks --help`. Everything is on loopback; nothing is left behind.
"""
