from crawler.freshness.learning cimport Learning
from crawler.frontier.refresh.deadlines cimport Deadlines
from crawler.frontier.refresh.exploration cimport Exploration
from crawler.frontier.refresh.flights cimport Flights
from crawler.frontier.refresh.queues cimport Queues
from crawler.frontier.refresh.level_controller cimport LevelController
from crawler.frontier.refresh.tables cimport Tables

cdef class Overview:
    cdef Tables tables
    cdef LevelController controller
    cdef Deadlines deadlines
    cdef Queues queues
    cdef Exploration exploration
    cdef Learning learning
    cdef Flights flights
    cdef double _fresh(self, double clock, double n) noexcept
