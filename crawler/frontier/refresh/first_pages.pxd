from crawler.freshness.learning cimport Learning
from crawler.frontier.refresh.heaps cimport Heaps
from crawler.frontier.refresh.offsets cimport Offsets
from crawler.frontier.refresh.tables cimport Tables

cdef class FirstPages:
    cdef Tables tables
    cdef Learning learning
    cdef Offsets offsets
    cdef double due
    cdef bint cut
    cdef int last
    cdef int[::1] _stack
    cdef bint is_unripe(self, int page, int directory, int host, double now) noexcept
    cdef double progress(self, int page, int directory, int host, double now) noexcept
    cdef int find_ripest(self, int directory, double revisit, double now) noexcept
    cdef int find(self, int directory, double now) noexcept
    cdef Py_ssize_t _push_children(self, int page, Py_ssize_t depth) noexcept
    cdef double _due_later(self, int page, double full, double at, double now, double bound) noexcept
    cdef double _reached(self, int page, int directory, int host, double at, double now) noexcept
    cdef double _delayed(self, double key, double crawled, double full, double at, double now) noexcept
    cdef double _fastest(self, double elapsed, double full) noexcept
    cdef double reached_at(self, int page, int directory, int host, double at, double now) noexcept
    cdef double _lead(self, double crawled, double wait, int directory, int host, double at) noexcept
