"""The order in which new URLs are crawled: the orders, which compute scores of links, and the classes of these scores."""
