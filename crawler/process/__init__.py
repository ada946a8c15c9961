"""One crawling process: joins the stages (`process/README.md`)."""
