from crawler.freshness.learning cimport Learning
from crawler.frontier.refresh.tables cimport Tables

cdef class Offsets:
    cdef Tables tables
    cdef Learning learning
    cdef bint clocked
    cdef double of_page(self, int page, int host, double now) noexcept
    cdef double of_directory(self, int directory, double now) noexcept
    cdef double of_host(self, int host, double now) noexcept
    cdef double directory_key(self, int directory, double first, double now) noexcept
    cdef double host_key(self, int host, double first, double now) noexcept
    cdef bint is_bounded(self, int page, int host) noexcept
