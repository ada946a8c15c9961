from crawler.frontier.refresh.tables cimport Tables

cdef double STANDS, RATIO_MAX, IDLE_SHARE

cdef class LevelController:
    cdef Tables tables
    cdef double level
    cdef double rate
    cdef double gain
    cdef bint unknown
    cdef double previous
    cdef double tick
    cdef double scale
    cdef double revisit
    cdef bint spaced
    cdef double caught_up
    cdef double _clock_min
    cdef double _clock_max
    cdef double _measured
    cdef Py_ssize_t _run
    cdef int _side
    cdef double fetch_rate(self) noexcept
    cdef void set_scale(self) noexcept
    cdef void set_revisit(self, double revisit) noexcept
    cdef void note_take(self, int host, double now, Py_ssize_t takes) noexcept
    cdef void adjust(self, double before, double after) noexcept
    cdef bint is_calm(self, double now) noexcept
    cdef void judge(
        self, int host, double deadline, double worth, bint jumped, double tick, double gap, double now) noexcept
    cdef void _turn(self, int side, double worth, double now) noexcept
    cdef void _boost(self, int host, int side, double pace) noexcept
    cdef void _measure(self, double tick) noexcept
