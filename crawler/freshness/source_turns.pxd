cdef double RIGHT

cdef class SourceTurns:
    cdef readonly Py_ssize_t size
    cdef readonly double[::1] right_told
    cdef readonly double[::1] right_silent
    cdef readonly double[::1] worthless
    cdef readonly double[::1] turned_at
    cdef list _columns
    cpdef void add_site(self) except *
    cdef void _grow(self) except *
    cpdef int learn(
        self, Py_ssize_t site, double learned, double right, double worthless, double now, bint told,
        bint used, bint trusted) noexcept
