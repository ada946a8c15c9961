"""Converts crawl directories of earlier formats to the current one.

ready            checks the format of a directory and upgrades it; every command calls it first
former_settings  1: keys of the configuration that were renamed or removed
plain_runs       2: runs of the DUE that are not coded
marks            3: numbers and marks in the store that were missing or had another name
refresh_records  4: records of sites and directories without room for facts about new pages
"""
