"""The hosts: when, and how often, each may be requested (table, workbench, politeness, addresses, budgets)."""
