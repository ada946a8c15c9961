"""The hosts: when each may be requested, and how much (table, workbench, politeness, addresses, budgets)."""
