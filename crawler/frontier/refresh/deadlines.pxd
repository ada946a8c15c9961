from crawler.freshness.learning cimport Learning
from crawler.freshness.value_kernel cimport Parameters
from crawler.frontier.refresh.level_controller cimport LevelController
from crawler.frontier.refresh.offsets cimport Offsets
from crawler.frontier.refresh.tables cimport Tables

cdef int BY_VALUE, BY_AZAR, BY_AGE, BY_INTERVAL

cdef class Deadlines:
    cdef Tables tables
    cdef LevelController controller
    cdef Learning learning
    cdef Offsets offsets
    cdef Parameters page
    cdef double[::1] counts
    cdef int policy
    cdef bint plain
    cdef bint clocked
    cdef Py_ssize_t _kind
    cdef double _new_page_weight
    cdef double _discovery_share_max
    cdef int stood
    cdef double stood_at
    cdef double stood_worth
    cdef void assign(self, int page, int host, double now) noexcept
    cdef void unpack(self, unsigned int signals) noexcept
    cdef double signals_of(self, int host, unsigned int signals) noexcept
    cdef unsigned int summed(self, unsigned int one, unsigned int other) noexcept
    cdef double _reach(self, int page, int host, double wait, double excess, double now) noexcept
    cdef double key_at(self, int page, int host, double now) noexcept
    cdef double parked_key(self, int page, int host, double due, double now) noexcept
    cdef double ratio(self, int page, int host, double elapsed, double n, double now) noexcept
    cdef double worth(self, int page, int host, double now) noexcept
    cdef double wait(self, int page, int host, double n, double now) noexcept
    cdef double pace(self, int page, int host, double now) noexcept
    cdef void note_take(self, int page, int host, double now) noexcept
    cdef double hub_part(self, int page, int host, double now) noexcept
    cdef double key(self, int page, int host, double n, double now) noexcept
    cdef double due(self, int page, int host, double n, double elapsed, double now) noexcept
    cdef bint is_paced(self, int page, int host) noexcept
    cdef void find_level(self, int page) noexcept
    cdef void sample_level(self, double now) noexcept
    cdef double _azar_value(self, double elapsed) noexcept
    cdef double _azar_wait(self, double level) noexcept
    cdef double early_by_worth(self, int page, int host, double now) noexcept
    cdef double due_by_worth(self, double worth, double now) noexcept
    cdef double _again(self, int host, double now) noexcept
