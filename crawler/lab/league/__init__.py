"""The refresh league: policies play on the change histories of real sites.

histories   the data: one file a site, facts only
git_log     such a file from a git clone
world       pages, budgets, signals by arm, the score; `play` lets a policy spend a budget
rivals      the rules of other crawlers, and anchors that know more than they could
shipped     the crawler's own refresh frontier as a policy
exact       its estimators without its schedule, all values anew every day
contenders  all policies by name
living      the living league: births cost discovery; hubs by rule, and how finders play
finders     its policies by name
living_table  its scores, delays and shares
scores      standard errors by jackknife over sites; tables
pictures    scores by budget; gains over the first policy

`crawler lab league --help` and `crawler lab histories --help` say how to use it.
"""
