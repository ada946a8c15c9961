"""Decides when, and how often, each host may be requested (table, workbench, politeness, addresses, budgets)."""
