"""Many what-ifs of one problem: a grid over its keys, its scenarios, or both; one JSON line each.

* `points`: which what-ifs, from the command line's words.
* `plan`: which of them share an evaluation, and in what order they are answered.
* `answer`: the line of one what-if.
* `store`: the folder of lines: what is done, what is left after a kill.
* `executors`: where they are answered: here, in processes, on a Dask cluster.
* `run`: all of it.
* `summary`, `parquet`: what came out, as a few best lines and as a table for data frames.
"""
