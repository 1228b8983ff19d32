"""Files on disk: the cache of earlier results, and the files of a run."""
