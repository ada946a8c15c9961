from crawler.freshness.learning cimport Learning
from crawler.frontier.refresh.tables cimport Tables

cdef class Offsets:
    cdef Tables tables
    cdef Learning learning
    cdef bint clocked
    cdef double of_page(self, int page, int host, double now) noexcept
    cdef double of_directory(self, int directory, double now) noexcept
    cdef double of_host(self, int host, double now) noexcept
    cdef double of_old(self, int directory, int host, double now) noexcept
    cdef double earliest(self, int directory, int host, double key, double now) noexcept
    cdef void note_crawl(self, int host, double now) noexcept
    cdef bint is_bounded(self, int page, int host) noexcept
    cdef bint may_lead(self, int directory, double key, double now) noexcept
