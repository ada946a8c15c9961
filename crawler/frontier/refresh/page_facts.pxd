from crawler.freshness.learning cimport Learning
from crawler.frontier.refresh.flights cimport Flights
from crawler.frontier.refresh.level_controller cimport LevelController
from crawler.frontier.refresh.queues cimport Queues
from crawler.frontier.refresh.tables cimport Tables

cdef void check_importance(double importance) except *

cdef class Facts:
    cdef Tables tables
    cdef LevelController controller
    cdef Queues queues
    cdef Learning learning
    cdef Flights flights
