from crawler.freshness.learning cimport Learning
from crawler.frontier.refresh.deadlines cimport Deadlines
from crawler.frontier.refresh.exploration cimport Exploration
from crawler.frontier.refresh.queues cimport Queues
from crawler.frontier.refresh.level_controller cimport LevelController
from crawler.frontier.refresh.tables cimport Tables

cdef void check_instant(double now) except *

cdef class Flights:
    cdef Tables tables
    cdef LevelController controller
    cdef Deadlines deadlines
    cdef Queues queues
    cdef Exploration exploration
    cdef Learning learning
    cdef dict held
    cdef readonly Py_ssize_t takes
    cdef void begin(self, int page, double now) except *
    cdef void cancel(self, int page, double now, double ready) except *
    cdef void finish(self, int page, double now, int result, double ready) except *
    cdef void remove(self, int page) except *
    cdef void free(self, int page) except *
    cdef unsigned int signals_since_crawl(self, int page) except? -1
    cdef void require_page(self, Py_ssize_t page) except *
    cdef void require_host(self, Py_ssize_t host) except *
    cdef bint is_free(self, int page) except? -1
    cdef void _steer(self, int page, int host, double now) except *
    cdef void _learn(self, int page, int host, unsigned int signals, bint changed, double now) except *
    cdef void _renew(self, int page, int host, double now) except *
    cdef void _release_host(self, int host, double now) except *
    cdef void _put_off(self, int page, int host, unsigned int signals, int result, double now) except *
