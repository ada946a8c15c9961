"""The public suffix list as the package has it, read and asked faster."""

import random

import publicsuffixlist
import pytest

from crawler.urls.suffixes import SuffixList, suffix_list, suffix_list_version

THEIRS = publicsuffixlist.PublicSuffixList()


def names_of(rule: str, rng: random.Random) -> list[str]:
    """Names at, below and above a rule."""
    name = rule.removeprefix("!").removeprefix("*.")
    labels = ["a", "www", "xn--85x722f", "co", "0", str(rng.randrange(100))]
    found = [name, name.partition(".")[2] or name]
    for _ in range(3):
        name = f"{rng.choice(labels)}.{name}"
        found.append(name)
    return found


def test_every_rule_means_what_it_means_to_the_package() -> None:
    """Names at, above and up to three labels below each rule of the list; ASCII ones, as host names are."""
    ours, rng = suffix_list(), random.Random(1)
    rules = [rule for rule in sorted(THEIRS._publicsuffix) if rule.isascii()]
    assert len(rules) > 8000
    for rule in rules:
        for name in names_of(rule, rng):
            assert ours.registrable(name) == (THEIRS.privatesuffix(name) or ""), name
            assert ours.is_public(name) == THEIRS.is_public(name), name


@pytest.mark.parametrize("seed", range(20))
def test_any_rules_mean_what_they_mean_to_the_package(seed: int) -> None:
    """Random rules over two labels, so that wildcards, exceptions and exact rules meet; random names."""
    rng = random.Random(seed)

    def name(longest: int) -> str:
        return ".".join(rng.choice("ab") for _ in range(rng.randint(1, longest)))

    rules = {rng.choice(["", "", "*."]) + name(3) for _ in range(rng.randint(0, 8))}
    rules |= {"!" + rng.choice("ab") + "." + name(2) for _ in range(rng.randint(0, 3))}
    ours, theirs = SuffixList(rules), publicsuffixlist.PublicSuffixList(sorted(rules))
    for _ in range(200):
        host = name(6)
        assert ours.registrable(host) == (theirs.privatesuffix(host) or ""), (rules, host)
        assert ours.is_public(host) == theirs.is_public(host), (rules, host)


@pytest.mark.parametrize("name", ["", ".", "a..com", ".com", "com.", "example.com.", "a.example..com"])
def test_a_name_with_an_empty_label_has_no_domain_and_is_no_suffix(name: str) -> None:
    assert suffix_list().registrable(name) == "" and not suffix_list().is_public(name)


def test_names_and_rules_are_in_a_labels_too() -> None:
    assert suffix_list().registrable("a.b.example.co.uk") == "example.co.uk"
    assert suffix_list().registrable("www.xn--85x722f.xn--55qx5d.cn") == "xn--85x722f.xn--55qx5d.cn"


def test_the_version_is_that_of_the_list() -> None:
    assert suffix_list_version()[0].isdigit()
