cdef struct HubRow:
    float found
    float watched
    float links
    int page

cdef class Hubs:
    cdef HubRow[::1] rows
    cdef int[::1] _numbers
    cdef Py_ssize_t _used
    cdef Py_ssize_t _hand
    cdef list _vacant
    cdef list _columns
    cpdef int row_of(self, int page) noexcept
    cpdef int make(self, int page, double watched) except? -2
    cpdef int turn(self) noexcept
    cpdef bint has_shown(self, int page) noexcept
    cpdef double links_of(self, int page) noexcept
    cpdef void crawled(self, int page, double elapsed) noexcept
    cpdef void forget(self, int page) except *
