"""The page cache over HTTP: stored pages to clients, change signals from the web; see README.md."""
