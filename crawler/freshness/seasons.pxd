cdef class Seasons:
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t kept
    cdef readonly double hour
    cdef readonly double week
    cdef int[::1] rows
    cdef unsigned char[::1] used
    cdef double[:, ::1] rhythms
    cdef double[::1] _parts
    cdef double[::1] _steps
    cdef double[:, ::1] _scratch
    cdef list _columns
    cpdef Py_ssize_t add(self)
    cdef void _grow(self) except *
    cdef double _speed(self, Py_ssize_t row, Py_ssize_t hour) noexcept
    cpdef double span(self, Py_ssize_t site, double begin, double end) noexcept
    cdef double _span(self, Py_ssize_t row, double begin, double end) noexcept
    cpdef double value_span(self, Py_ssize_t site, double begin, double end) noexcept
    cpdef double value_end(self, Py_ssize_t site, double begin, double wait) noexcept
    cdef double _reading(self, Py_ssize_t row, double at, double least) noexcept
    cpdef bint learns(self, Py_ssize_t site, double elapsed) noexcept
    cdef void _keep(self, Py_ssize_t site) except *
    cpdef double trial(self, Py_ssize_t site, double begin, double end) noexcept
    cpdef void observe(
        self, Py_ssize_t site, double begin, double end, double hazard, double plain, double paced,
        bint changed) noexcept
    cdef void _split(self, Py_ssize_t row, double begin, double end, double hazard) noexcept
    cdef void _learn(self, Py_ssize_t row, double hazard, double faded, bint changed) noexcept
