"""The experiments of the papers, as commands that run the crawler's own code.

refresh    crawl values, estimators, policies and a simulator on drawn pages; the public data set
league     refresh policies on the change histories of real sites
order      orders of new URLs on link graphs
cluster    many processes in a virtual world with faults
changing   a web on loopback whose pages change, for tests and the demonstration
living     refresh policies on drawn webs
caches     URL caches and their kernels, traces, crawl orders, the link-locality model
figures    drawing.py and one file per paper: ncis.py  azar.py  broder.py
commands   the command lines

`python -m crawler.lab` lists the commands.
"""
