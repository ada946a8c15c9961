"""The page cache over HTTP: serves stored pages and receives change signals; see README.md."""
