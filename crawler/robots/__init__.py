"""What a site allows: the rules of robots.txt and what is known of each authority's file."""
