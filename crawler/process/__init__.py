"""One crawling process: connects the stages of the pipeline (see `process/README.md`)."""
