"""When a host may be asked: table, workbench, politeness, addresses, budgets."""
