"""The refresh league: a competition of refresh policies on the change histories of real sites.

histories   the data: one file per site, facts only
git_log     extracts such a file from a git clone
world       pages, budgets, signals by arm, the score; `play` lets a policy spend a budget
rivals      the rules of other crawlers, and reference policies with knowledge that no crawler has
shipped     the crawler's own refresh frontier as a policy
exact       the crawler's estimators without its schedule; all values are recomputed every day
contenders  all policies by name
living      the living league, in which new pages must be discovered: hubs by rule, and the play
finders     the policies of the living league by name
living_table  scores, delays and shares of the living league
scores      standard errors by jackknife over sites; tables
pictures    scores by budget; gains over the first policy

`crawler lab league --help` and `crawler lab histories --help` explain the commands.
"""
