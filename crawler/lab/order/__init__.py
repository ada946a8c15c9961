"""Orders of new URLs on link graphs of real documentation, by the quality that they find early."""
