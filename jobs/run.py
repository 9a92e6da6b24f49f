"""`ray job submit --working-dir jobs -- python run.py OPTIONS` is `saod-ray run OPTIONS` on that cluster."""

from job import main

main("run")
