"""`ray job submit --working-dir jobs -- python score.py STORE OPTIONS` is `saod-ray score STORE OPTIONS` on its head."""

from job import main

main("score")
