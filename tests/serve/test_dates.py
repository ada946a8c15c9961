"""Compare our formatting of times with that of the standard library."""

from datetime import UTC, datetime
from email.utils import formatdate

from hypothesis import example, given
from hypothesis import strategies as st

from crawler.serve.dates import dates_of


@given(st.floats(-62_135_596_800, 253_402_300_799, allow_nan=False))
@example(0.0)
@example(86_399.999)
@example(951_782_400.0)  # 2000-02-29
@example(-1.0)
def test_dates_equal_those_of_the_standard_library(instant: float) -> None:
    moment, dates = datetime.fromtimestamp(int(instant), UTC).isoformat()[:19], dates_of(int(instant))
    assert dates.http == dates.field.decode() == formatdate(int(instant), usegmt=True)
    assert dates.rfc3339.decode() == f"{moment}Z"
    assert dates.stamp == moment.translate(str.maketrans("", "", "-:T"))
