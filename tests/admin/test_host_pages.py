"""Test that the host lists of several processes are merged into one list."""

from typing import Any

from crawler.admin.host_pages import merged


def answer(*ranks: float, failing: int = 0) -> dict[str, Any]:
    rows = [{"host": f"h{rank}", "rank": rank, "cause": "connect_error"} for rank in ranks]
    return {"hosts": 10, "matched": 5, "failing": failing, "unsearched": 0, "rows": rows}


def test_the_merged_list_is_ranked_over_all_processes() -> None:
    found = merged([answer(9.0, 3.0, failing=2), answer(7.0, 1.0), answer()], 3, ("p3",))
    assert [row["host"] for row in found["rows"]] == ["h9.0", "h7.0", "h3.0"]
    assert (found["hosts"], found["matched"], found["failing"]) == (30, 15, 2)
    assert found["missing"] == ["p3"] and found["rows"][0]["said"] == "connection refused or timed out"
