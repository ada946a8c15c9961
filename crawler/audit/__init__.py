"""`crawler report` finds the faults of a site, for its webmaster (`audit/README.md`)."""
