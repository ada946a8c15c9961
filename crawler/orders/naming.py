"""Finds the order that the configuration names: an order of the crawler itself, or one of an installed package."""

from collections.abc import Callable
from typing import Any

from crawler.config import OrderConfig
from crawler.errors import ConfigError, bad_setting
from crawler.orders.order import BREADTH_FIRST, Ranking
from crawler.wording import not_one_of

GROUP = "crawler.orders"


def ranking(
    config: OrderConfig, failed: Callable[[BaseException, str], object] | None = None
) -> Ranking | None:
    """Return the order that the configuration names, or None for breadth-first.

    Raises:
        ConfigError: no order has that name, or creating it failed.
    """
    if config.name == BREADTH_FIRST:
        return None
    # imported here because most crawls use no order and do not need the patterns that the module compiles
    from crawler.orders.builtin_orders import SHIPPED

    make = SHIPPED.get(config.name) or _installed(config.name, SHIPPED)
    try:
        order = make(config)
        if not callable(getattr(order, "score", None)):
            raise ConfigError(f"order.name {config.name}: {type(order).__name__} has no method named score")
        return Ranking(order, failed, own=config.name in SHIPPED)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"order.name {config.name}: {type(error).__name__}: {error}") from error


def _installed(name: str, shipped: dict[str, Any]) -> Any:
    """Return the factory of the order that an installed package offers as `name`."""
    from importlib import metadata  # imported here because it is slow and seldom needed

    installed = metadata.entry_points(group=GROUP)
    found = next((each for each in installed if each.name == name), None)
    if found is None:
        known = (BREADTH_FIRST, *shipped, *sorted(installed.names))
        raise bad_setting("order.name", not_one_of(repr(name), known, f" or an entry point in {GROUP}"))
    try:
        return found.load()
    except Exception as error:
        raise ConfigError(f"order.name {name}: {type(error).__name__}: {error}") from error
