"""The refresh league: a competition of refresh policies on the change histories of real sites; see `README.md`."""
