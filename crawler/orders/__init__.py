"""Which new URL goes first: scores of links, their classes, and the orders that give them."""
