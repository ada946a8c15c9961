"""Crawl directories of earlier formats, brought to the present one.

ready       what every command asks first: the directory is of this format, or it is brought to it
settings    1: keys of the configuration that are renamed or gone
plain_runs  2: runs of the DUE that are not coded
marks       3: numbers and marks in the store that had another name, or none
refresh_records  4: records of sites and directories that have room for what is learned of new pages
"""
