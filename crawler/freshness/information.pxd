cpdef double net_gain(double y) noexcept
cpdef double information(double shape, double span, double elapsed, double price, double restless=*) noexcept
