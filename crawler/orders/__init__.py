"""Determines the order in which new URLs are crawled.

Orders compute the scores of links, and the scores are reduced to classes.
"""
