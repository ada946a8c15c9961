# What other compiled modules may call without going through Python.
cdef class Parameters:
    cdef readonly Py_ssize_t form
    cdef readonly Py_ssize_t terms
    cdef readonly double importance
    cdef readonly double change_rate
    cdef readonly double silent_rate
    cdef readonly double signal_rate
    cdef readonly double false_rate
    cdef readonly double signal_weight
    cdef readonly double signal_time
    cdef readonly double ceiling
    cdef double _precision
    cdef double _gained
    cdef double _interval
    cpdef void assign(
        self, Py_ssize_t kind, Py_ssize_t terms, double importance, double change_rate, double silent_rate,
        double signal_rate, double false_rate, double signal_weight) noexcept
    cpdef void assign_quality(
        self, Py_ssize_t kind, Py_ssize_t terms, double importance, double change_rate, double precision,
        double recall) noexcept
    cpdef double value(self, double elapsed, double signals) noexcept
    cpdef double interval(self, double at) noexcept
    cpdef double fresh_time(self, double at) noexcept
    cpdef double slope(self, double elapsed, double signals) noexcept
    cpdef double threshold(self, double level, double guess, double tolerance) noexcept
    cpdef double wait(self, double level, double signals, double guess, double tolerance) noexcept
    cdef void _evaluate(self, double elapsed, double signals) noexcept
    cdef double _slope(self, double elapsed, double signals) noexcept
    cdef double _top(self) noexcept
    cdef void _sum(self, double elapsed, double signals, double staleness) noexcept
    cdef void _renew(self, double staleness) noexcept
    cdef double _search(self, double level, double signals, double guess, double tolerance) noexcept
    cdef double _signals_needed(self, double level) noexcept
