"""The order in which new URLs are crawled: scores of links, their classes, and the orders that compute the scores."""
